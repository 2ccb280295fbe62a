"""Tasks for the side effects people queue most: ``app.include(windlass.tasks, roots=["data"])``.

A task is registered when what it needs is configured, and left out otherwise, so that nothing can be asked
for that nobody has allowed. Each is a model of how a task of your own should look, and ``write_file`` and
``remove_file`` are what they are made of.
"""

from windlass.tasks.files import remove_file, write_file
from windlass.tasks.registering import IncludeOptions, register
from windlass.tasks.roots import Roots

__all__ = ["IncludeOptions", "Roots", "register", "remove_file", "write_file"]
