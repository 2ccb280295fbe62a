"""Blocking twins of the async API, behind ``app.sync``."""
