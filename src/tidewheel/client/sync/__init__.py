"""The blocking API, behind ``app.sync``."""
