"""Pages of what is listed from new to old, by cursor alone."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct


class PageQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=200)] = 50
    cursor: Annotated[str, Meta(min_length=1, max_length=300)] | None = None
