"""Tasks that were written elsewhere and come into an app together, with their configuration."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar

from tidewheel.errors import ConfigurationError

if TYPE_CHECKING:
    from tidewheel.app import Tidewheel

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)


class TaskSource(Protocol[P, R_co]):
    """What can be included: a module, or anything else, with a function ``register(app, …)``."""

    @property
    def register(self) -> Callable[Concatenate[Tidewheel, P], R_co]:
        """Register tasks with ``app``, as the rest of its arguments tell."""


def include(app: Tidewheel, source: Any, args: Any, configuration: Any) -> Any:
    """Have ``source`` register its tasks, all of them or none; what it answers."""
    register = getattr(source, "register", None)
    if not callable(register):
        name = getattr(source, "__name__", repr(source))
        raise ConfigurationError(
            f"{name} has no function register(app, …), so there is nothing to include; "
            "write one that calls app.task(…) for each of its tasks"
        )
    with app.registry.whole_or_nothing():
        return register(app, *args, **configuration)
