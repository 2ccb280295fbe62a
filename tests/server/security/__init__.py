"""Attacks on the HTTP API, made from its route table: a new route is attacked by itself."""
