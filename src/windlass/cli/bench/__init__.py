"""``windlass bench``: how fast it is here."""
