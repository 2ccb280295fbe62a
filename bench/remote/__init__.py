"""Workers over HTTP, measured: what waiting costs, and what killing costs."""
