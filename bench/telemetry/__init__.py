"""What metrics and spans cost: ``python -m bench.telemetry``."""
