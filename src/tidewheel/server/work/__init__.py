"""Workers that reach this server, and not the store: they take jobs and end them over HTTP."""
