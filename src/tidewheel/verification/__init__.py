"""Trying to break the promises: histories, the checker that reads them, and the sweep that makes them."""
