"""Work for processes that reach this one, and not the store: what a server needs to hand jobs out."""
