"""Client side of an app: connections, enqueueing, job handles, results and transactions."""
