"""``tidewheel why``: the six questions of an operator."""
