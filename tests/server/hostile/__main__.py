"""Run all attacks at full size: ``python -m tests.server.hostile [--python PYTHON] [ATTACK ...]``."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.server.hostile.scenes import QUICK_SETTINGS, SCENES, broken_limits, run
from tests.server.hostile.target import target


def main() -> None:
    parser = argparse.ArgumentParser(description="Attack a server and print what it cost.")
    parser.add_argument("attacks", nargs="*", metavar="ATTACK", help="some of the attacks; all without any")
    parser.add_argument(
        "--python", default=sys.executable, help="the interpreter of another checkout to attack"
    )
    parser.add_argument("--small", action="store_true", help="at the size of the tests")
    arguments = parser.parse_args()
    unknown = set(arguments.attacks) - {scene.attack for scene in SCENES}
    if unknown:
        parser.error(f"there is no attack {', '.join(sorted(unknown))}")
    print("| attack | connections | memory before → peak (MB) | /healthz median, worst (s) | cut | after (s) "
          "| log lines | holds |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|")
    for scene in SCENES:
        if arguments.attacks and scene.attack not in arguments.attacks:
            continue
        settings = QUICK_SETTINGS if arguments.small else {}
        with (
            tempfile.TemporaryDirectory() as directory,
            target(
                Path(directory), python=arguments.python, files=scene.files, settings=settings
            ) as attacked,
        ):
            try:
                outcome, watch = run(scene, attacked, full=not arguments.small)
            except AssertionError as error:
                print(f"| {scene.attack} | | | | | | | {error} |", flush=True)
                continue
        broken = "; ".join(broken_limits(scene, outcome, watch)) or "yes"
        print(
            f"| {scene.attack} | {outcome.connections} | {watch.memory_before:.0f} → {watch.memory_peak:.0f} "
            f"| {watch.median:.3f}, {max(watch.probes):.2f} | {outcome.cut} of {outcome.connections} "
            f"| {outcome.seconds:.1f} | {watch.log_lines} | {broken} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
