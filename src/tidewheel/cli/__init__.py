"""The command line. ``tidewheel --help`` lists the commands; each lives in the module named like it."""

import sys


def main() -> None:
    """What the ``tidewheel`` script runs."""
    if sys.argv[1:2] == ["beanstalkd"]:
        from tidewheel.cli.early_listener import close_unused_listeners, listen_early

        listen_early(sys.argv[2:])
        try:
            _run()
        finally:
            close_unused_listeners()
    else:
        _run()


def _run() -> None:
    from tidewheel.cli.command_group import tidewheel
    from tidewheel.cli.terminal import make_streams_safe

    make_streams_safe()
    tidewheel.main(prog_name="tidewheel")
