"""The health port of ``tidewheel worker``: whether it lives and works, for whoever runs it."""
