"""Pulling jobs by hand: the verbs of ``app.queue``, for programs that register no tasks."""
