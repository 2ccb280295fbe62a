"""The health port of ``windlass worker``: whether it lives and works, for whoever runs it."""
