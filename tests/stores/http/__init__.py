"""The store over HTTP: a real client, a real socket, a real server."""
