"""An object on its way through code that carries bodies: arguments and results of tasks that are not durable.

To whoever looks at it as bytes it is the JSON ``null``, so a job's record shows no payload and no result.
"""

from __future__ import annotations

from typing import Any


class Carried(bytes):
    """A body that holds an object until somebody takes it out.

    Handed from one place to the next, never kept: what carries it may be a Struct the garbage collector does
    not look into, and an object that leads back to its own job would then never be freed.
    """

    _value: Any

    @classmethod
    def of(cls, value: Any) -> Carried:
        """A body with this object in it."""
        carried = cls(b"null")
        carried._value = value
        return carried

    def take(self) -> Any:
        """The object, once."""
        value = self._value
        del self._value
        return value
