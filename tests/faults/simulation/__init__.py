"""Workers, keepers, rescue and a store in one thread, under simulated time and a seeded scheduler."""
