"""Moving all jobs of one store to another."""
