"""Connections of the caller's own: what they are, and how work is done on each kind."""
