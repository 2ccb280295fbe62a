"""Management commands that Django finds by module name: tidewheel, tidewheel_migrate, tidewheel_worker."""
