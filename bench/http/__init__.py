"""What HTTP costs: ``python -m bench.http``."""
