"""Names as the API's types have them; the hall checks them again by the same rules."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import Meta

TenantName: TypeAlias = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.:@-]{1,200}$")]
TopicName: TypeAlias = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,200}$")]
