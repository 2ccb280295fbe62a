"""The hidden files that runs write before they are put in place: their names, and those nobody put there.

A run that is killed leaves its own behind for the next run of its job. When there is none, because the job
was cancelled or its attempts were used up, it stays until somebody removes it: ``tidewheel doctor`` tells.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Final
from uuid import UUID

from tidewheel.reconciliation import Leftover

HIDDEN: Final = re.compile(
    r"\.tidewheel-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})-\d{1,20}\.(?:tmp|part)"
)


def hidden_name(job_id: UUID, fence: int, kind: str) -> str:
    """Of the run of this job with this fence; no two runs have the same."""
    return f".tidewheel-{job_id}-{fence}.{kind}"


def find_leftovers(roots: Sequence[str], most: int) -> tuple[list[Leftover], bool]:
    """Hidden files beneath these directories; False when there are more names than ``most``, the rest unread.

    Only names are read, links are not followed, and what cannot be read is passed over. Blocks.
    """
    found: dict[str, Leftover] = {}
    waiting = [os.path.realpath(root) for root in roots]
    seen = set(waiting)
    left = most
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if left == 0:
                        return list(found.values()), False
                    left -= 1
                    if (name := HIDDEN.fullmatch(entry.name)) is not None:
                        if entry.is_file(follow_symlinks=False):
                            size = entry.stat(follow_symlinks=False).st_size
                            found[entry.path] = Leftover(entry.path, UUID(name[1]), size)
                    elif entry.is_dir(follow_symlinks=False) and entry.path not in seen:
                        seen.add(entry.path)
                        waiting.append(entry.path)
        except OSError:
            continue
    return list(found.values()), True
