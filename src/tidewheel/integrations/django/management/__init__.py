"""Management commands: the commands of ``tidewheel`` in ``manage.py``, with the same options.

They work on the project's own app.
"""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from typing import Any, ClassVar, Final

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser

from tidewheel.cli.command_group import run_for_app

_APP_REFERENCE: Final = "tidewheel.integrations.django.worker_app"


class _Parser(CommandParser):  # type: ignore[misc]
    """Takes what Django's commands have in common; everything else is for the command line of Tidewheel."""

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        known, rest = self.parse_known_args(args, namespace)
        return Namespace(**{**vars(known), "args": tuple(rest)})


class TidewheelCommand(BaseCommand):  # type: ignore[misc]
    """One command of the command line, or with an empty ``prefix`` all of them."""

    prefix: ClassVar[tuple[str, ...]] = ()

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        """Without its own --help: that of the command says more."""
        prog = f"{os.path.basename(prog_name)} {subcommand}"
        parser = _Parser(prog=prog, add_help=False, allow_abbrev=False, **kwargs)
        parser.add_argument("--settings", help="The Python path to the settings.")
        parser.add_argument("--pythonpath", help="A directory to add to the Python path.")
        parser.add_argument("--backend", default="default", help="Which of TASKS is meant.")
        parser.add_argument("-v", "--verbosity", type=int, choices=range(4), help="See --log-level instead.")
        parser.add_argument("--skip-checks", action="store_true", help="Skip system checks.")
        parser.add_argument("--no-color", action="store_true")
        parser.add_argument("--force-color", action="store_true")
        parser.set_defaults(verbosity=1, traceback=False)
        return parser

    def print_help(self, prog_name: str, subcommand: str) -> None:  # noqa: ARG002
        """For ``manage.py help``: what ``--help`` says."""
        self.handle("--help", backend="default")

    def handle(self, *words: str, **options: Any) -> None:
        """Run it, and come back where it went well: whoever called this command goes on."""
        if self.prefix and {"-h", "--help"} & {*words}:
            self.stdout.write(
                "The app is the one of the project: leave MODULE:APP away, or say --backend NAME for another "
                "of TASKS than default.\n"
            )
            self.stdout.flush()
        before = sys.argv, os.environ.get("PYTHONPATH")
        # Worker processes are fresh interpreters, which have to find what manage.py lies beside.
        paths = (os.path.abspath(sys.path[0]), before[1])
        os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(None, paths)))
        try:
            run_for_app(
                f"{_APP_REFERENCE}:{options['backend']}",
                [*self.prefix, *words],
                prog_name="manage.py tidewheel",
            )
        except ImproperlyConfigured as error:
            raise CommandError(str(error)) from error
        except SystemExit as ended:
            if ended.code:
                raise
        finally:
            sys.argv = before[0]
            os.environ.pop("PYTHONPATH")
            if before[1] is not None:
                os.environ["PYTHONPATH"] = before[1]
