"""What event streams cost: a server in a process of its own, and clients in others. For Linux."""
