"""The web UI in a browser, with a million jobs."""
