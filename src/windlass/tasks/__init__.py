"""Tasks for the side effects people queue most: ``app.include(windlass.tasks, roots=["data"])``.

A task is registered when what it needs is configured, and left out otherwise, so that nothing can be asked
for that nobody has allowed. Each is a model of how a task of your own should look.
"""

from windlass.tasks.registering import IncludeOptions, register

__all__ = ["IncludeOptions", "register"]
