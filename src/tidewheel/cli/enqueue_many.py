"""Jobs from a file of JSON lines, in batches, with a progress bar."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TextIO

from tidewheel.app import Tidewheel
from tidewheel.cli import words
from tidewheel.cli.terminal import progress_bar
from tidewheel.errors import InvalidInput, InvalidPayload
from tidewheel.options import EnqueueOptions
from tidewheel.payload import RepeatedMember, unique_members

BATCH: Final = 1000
"""Lines written in one transaction."""

_position = re.compile(r"payload (\d+) of enqueue_many \(from 0\): ")


@dataclass(slots=True)
class Tally:
    """What became of a file."""

    enqueued: int = 0
    duplicates: int = 0
    ids: list[str] = field(default_factory=list)


def enqueue_file(app: Tidewheel, name: str, file: TextIO, options: EnqueueOptions) -> Tally:
    """A job for each line that is not empty. An error names its line and says what was written before it.

    Blocking, so that Ctrl-C also ends it while it waits for a line that does not come.
    """
    tally = Tally()
    with app.sync as queue, progress_bar() as bar:
        row = bar.add_task(f"enqueue {name}", total=_count_lines(file))
        for lines, payloads in _batches(file, tally):
            try:
                jobs = queue.enqueue_many(name, payloads, **options)
            except InvalidInput as error:
                raise type(error)(f"{_named(str(error), lines)}{_so_far(tally)}") from None
            for job in jobs:
                tally.ids.append(str(job.id))
                if job.duplicate:
                    tally.duplicates += 1
                else:
                    tally.enqueued += 1
            bar.update(row, completed=lines[-1])
    return tally


def _batches(file: TextIO, tally: Tally) -> Iterator[tuple[list[int], list[Any]]]:
    lines: list[int] = []
    payloads: list[Any] = []
    try:
        for number, line in enumerate(file, start=1):
            if line.strip():
                lines.append(number)
                payloads.append(_parse(line, number, tally))
            if len(payloads) == BATCH:
                yield lines, payloads
                lines, payloads = [], []
    except UnicodeDecodeError as error:
        raise InvalidPayload(f"the file is not UTF-8: {error}{_so_far(tally)}") from None
    if payloads:
        yield lines, payloads


def _parse(line: str, number: int, tally: Tally) -> Any:
    try:
        return json.loads(line, object_pairs_hook=unique_members)
    except RepeatedMember as error:
        raise InvalidPayload(f"line {number:,} cannot be accepted: {error}{_so_far(tally)}") from None
    except (ValueError, RecursionError) as error:
        raise InvalidPayload(f"line {number:,} is not JSON: {error}{_so_far(tally)}") from None


def _named(message: str, lines: list[int]) -> str:
    """An error of ``enqueue_many`` with the file's line in place of the position in the batch."""
    match = _position.match(message)
    if match is None:
        return f"lines {lines[0]:,} to {lines[-1]:,}: {message}"
    return f"line {lines[int(match[1])]:,}: {message[match.end() :]}"


def _so_far(tally: Tally) -> str:
    written = tally.enqueued + tally.duplicates
    if not written:
        return "; nothing was written"
    return f"; {words.jobs(written)} of earlier lines are written, the rest is not"


def _count_lines(file: TextIO) -> int | None:
    """How many lines there are, where that can be known before reading them."""
    if not file.seekable() or not os.path.isfile(file.name):
        return None
    with open(file.name, "rb") as counted:
        return sum(chunk.count(b"\n") for chunk in iter(lambda: counted.read(1 << 20), b""))
