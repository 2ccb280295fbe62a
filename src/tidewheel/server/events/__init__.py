"""What happens in a queue, as it happens, for any number of listeners: server-sent events.

No listener has a queue. One watcher turns hints and counters into events, the last ten thousand of them lie
in a ring, and a listener is a position in it: a slow one costs no memory, and misses nothing but the counts
that newer ones have replaced.
"""
