"""The work: what is done to each system, and which figures come of it."""
