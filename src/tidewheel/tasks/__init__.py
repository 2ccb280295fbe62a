"""Tasks for the side effects people queue most: ``app.include(tidewheel.tasks, roots=["data"])``.

A task is registered when what it needs is configured, and left out otherwise, so that nothing can be asked
for that nobody has allowed. Each is a model of how a task of your own should look, and ``write_file`` and
``remove_file`` are what they are made of.
"""

from tidewheel.tasks.files import remove_file, write_file
from tidewheel.tasks.registering import IncludeOptions, register
from tidewheel.tasks.roots import Roots
from tidewheel.tasks.signing import Credentials

__all__ = ["Credentials", "IncludeOptions", "Roots", "register", "remove_file", "write_file"]
