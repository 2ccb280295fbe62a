"""Names as the API's types have them; the hall checks them again by the same rules."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import Meta

from tidewheel.model import Shown, State

TenantName: TypeAlias = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.:@-]{1,200}$")]
TopicName: TypeAlias = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,200}$")]

StateName: TypeAlias = Annotated[str, Meta(extra_json_schema={"enum": [str(state) for state in State]})]
"""A state that is stored."""
ShownStateName: TypeAlias = Annotated[
    str, Meta(extra_json_schema={"enum": [str(state) for state in (*State, *Shown)]})
]
"""A state as it is shown, derived ones among them."""
