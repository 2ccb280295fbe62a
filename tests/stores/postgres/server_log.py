"""What a shared server complains about while one test is under way."""

from __future__ import annotations

import re
from typing import Self

import asyncpg

from tests.servers import PostgresServer

_of_session = re.compile(r"^\S+ \S+ \S+ \[(\d+)\] ")
"""How a line begins, as ``log_line_prefix`` of our servers has it; others go on with the one before."""


class Complaints:
    """What sessions say that were not busy when this began.

    One that an earlier test gave up in the middle of a statement complains when that ends, seconds later, and
    that is nothing to the test that runs by then.
    """

    def __init__(self, server: PostgresServer, busy: frozenset[int]) -> None:
        self._server = server
        self._busy = busy
        self._from = server.log.stat().st_size

    @classmethod
    async def of(cls, server: PostgresServer) -> Self:
        connection = await asyncpg.connect(server.url())
        try:
            rows = await connection.fetch(
                "SELECT pid FROM pg_stat_activity WHERE state <> 'idle' AND pid <> pg_backend_pid()"
            )
        finally:
            await connection.close()
        return cls(server, frozenset(row["pid"] for row in rows))

    def heard(self) -> list[str]:
        """Each with what the server says about it: who waited for whom in a circle is told there and nowhere
        else.
        """
        with self._server.log.open("rb") as log:
            log.seek(self._from)
            return complaints(log.read().decode(errors="replace"), self._busy)


def complaints(log: str, others: frozenset[int]) -> list[str]:
    """Lines that say something went wrong, and those about them, but for what these ``others`` say."""
    told: list[str] = []
    about = False
    for line in log.splitlines():
        begin = _of_session.match(line)
        if begin is not None and int(begin[1]) in others:
            about = False
        elif re.search(r"\b(ERROR|FATAL|PANIC|WARNING):", line):
            told.append(line)
            about = True
        elif about and (begin is None or re.search(r"\b(DETAIL|HINT|CONTEXT|STATEMENT):", line)):
            told[-1] += f"\n{line}"
        else:
            about = False
    return told
