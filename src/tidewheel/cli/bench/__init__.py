"""``tidewheel bench``: how fast it is here."""
