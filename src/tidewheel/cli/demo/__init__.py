"""``tidewheel demo``: a newcomer's first minute with a queue."""
