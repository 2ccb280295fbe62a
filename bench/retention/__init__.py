"""Finished jobs that are pruned beside others at work: ``python -m bench.retention``."""
