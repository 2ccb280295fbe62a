"""Data and rules without I/O: jobs, outcomes, limits, conditions, cron, payloads, names."""
