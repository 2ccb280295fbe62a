"""Schedules: jobs made at their times, each firing once, however many workers there are."""
