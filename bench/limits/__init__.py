"""Limits at work: real processes, real stores, and workers that are killed."""
