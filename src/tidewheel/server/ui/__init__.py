"""The web UI: built files that the server hands to browsers. Everything they show comes from the HTTP API."""
