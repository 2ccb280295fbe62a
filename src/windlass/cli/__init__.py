"""The command line. ``windlass --help`` lists the commands; each lives in the module named like it."""

from __future__ import annotations


def main() -> None:
    """What the ``windlass`` script runs."""
    from windlass.cli.root import windlass
    from windlass.cli.terminal import make_streams_safe

    make_streams_safe()
    windlass.main(prog_name="windlass")
