"""Attacks on the HTTP connection: raw sockets against a real server process."""
