"""``tidewheel top``: a queue at work, live on a terminal."""
