"""Tasks: registration, signatures, payload types, options, middleware and the handler context."""
