"""Types of query and body fields that several routes share: names, states, pages.

The patterns of names repeat the rules of ``core.names``, which checks them again. A page lists entries from
new to old, and its cursor alone says where it begins.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import Meta, Struct

from tidewheel.core.model import DerivedState, State

TenantName: TypeAlias = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.:@-]{1,200}$")]
TopicName: TypeAlias = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,200}$")]

StateName: TypeAlias = Annotated[str, Meta(extra_json_schema={"enum": [str(state) for state in State]})]
"""A state that is stored."""
DerivedStateName: TypeAlias = Annotated[
    str, Meta(extra_json_schema={"enum": [str(state) for state in (*State, *DerivedState)]})
]
"""A state as it is shown, derived ones among them."""


class PageQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=200)] = 50
    cursor: Annotated[str, Meta(min_length=1, max_length=300)] | None = None
