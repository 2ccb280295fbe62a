"""``python -m tests.server.streams --streams 2000``."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from tests.server.streams.limits import allow_many_files
from tests.server.streams.measurement import measure


def main() -> None:
    parser = argparse.ArgumentParser(description="What event streams cost.")
    parser.add_argument("--streams", type=int, default=2000)
    parser.add_argument("--idle-seconds", type=float, default=20.0)
    arguments = parser.parse_args()
    most = allow_many_files()
    if most < arguments.streams + 100:
        parser.error(f"{most:,} files may be open; {arguments.streams:,} streams need more (ulimit -Hn)")
    with tempfile.TemporaryDirectory() as directory:
        figures = measure(Path(directory), arguments.streams, idle_seconds=arguments.idle_seconds)
    print(f"{figures.streams:,} streams opened in {figures.opened_seconds:.1f} s")
    print(f"memory of the server: {figures.kilobytes_per_stream:.1f} kB a stream")
    print(f"processor while idle: {100 * figures.idle_processor_share:.1f} % of a core")
    print(f"told of a change: the first after {figures.first_told_ms:.0f} ms, the last after "
          f"{figures.last_told_ms:.0f} ms")  # fmt: skip
    print(f"clients killed: all streams gone after {figures.gone_seconds:.2f} s, open sockets "
          f"{figures.sockets_before} before and {figures.sockets_after} after")  # fmt: skip
    print(f"SIGTERM with all open: exit {figures.exit_code} after {figures.exit_seconds:.2f} s")


if __name__ == "__main__":
    main()
