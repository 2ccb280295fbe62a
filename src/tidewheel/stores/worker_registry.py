"""What a worker tells about itself beyond its columns, as text: the same on every store that keeps text."""

from __future__ import annotations

import msgspec

from tidewheel.core.model import Lane, WorkerRecord


class _WorkerDetails(msgspec.Struct):
    """Fields may be added: text of another version of Tidewheel is read as far as it goes."""

    lanes: list[tuple[str, str | None]] = []
    more_lanes: int = 0
    concurrency: int = 0
    running: int = 0
    claimed: int = 0
    stuck: int = 0
    loop_lag_seconds: float = 0.0
    polling: bool = False
    clock_step_seconds: float = 0.0
    ran: int = 0
    completed: int = 0
    failed: int = 0
    lost: int = 0


_decoder = msgspec.json.Decoder(_WorkerDetails)
_PLAIN = tuple(name for name in _WorkerDetails.__struct_fields__ if name != "lanes")


def encode_worker_details(worker: WorkerRecord) -> str:
    lanes = [(lane.topic, lane.task) for lane in worker.lanes]
    details = _WorkerDetails(lanes, **{name: getattr(worker, name) for name in _PLAIN})
    return msgspec.json.encode(details).decode()


def decode_worker_row(
    name: str, host: str, pid: int, version: str, started_at: int, seen_at: int, details: str
) -> WorkerRecord:
    """A row of the table of workers, its columns in order."""
    told = _decoder.decode(details)
    return WorkerRecord(
        name=name,
        host=host,
        pid=pid,
        version=version,
        started_at=started_at,
        seen_at=seen_at,
        lanes=tuple(Lane(topic, task) for topic, task in told.lanes),
        **{name: getattr(told, name) for name in _PLAIN},
    )
