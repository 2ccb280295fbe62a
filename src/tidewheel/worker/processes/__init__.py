"""Handlers in processes of their own: killable, and unable to harm their neighbours.

::

    worker: pool ─▶ process ══ socket ══ child ─▶ one handler at a time
                     messages: load, run, stop, …        loaded, reported, logged, ended

The worker's side is ``pool`` and ``handler_process``; everything else runs in the child. The child has no
store: reports of its handler go through the worker, under the lease.
"""
