"""The command line. ``windlass --help`` lists the commands; each lives in the module named like it."""

import sys


def main() -> None:
    """What the ``windlass`` script runs."""
    if sys.argv[1:2] == ["beanstalkd"]:
        from windlass.cli.early import give_up, listen_early

        listen_early(sys.argv[2:])
        try:
            _run()
        finally:
            give_up()
    else:
        _run()


def _run() -> None:
    from windlass.cli.root import windlass
    from windlass.cli.terminal import make_streams_safe

    make_streams_safe()
    windlass.main(prog_name="windlass")
