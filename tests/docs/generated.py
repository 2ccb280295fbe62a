"""The parts of the reference that are written by the code they describe.

``python -m tests.docs.generated`` brings them up to date; a test says when that was forgotten. A part stands
between ``<!-- generated: name -->`` and ``<!-- end -->``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from tests.docs.pages import ROOT
from windlass.cli.root import windlass as root
from windlass.settings import SETTINGS, Kind, Setting

_part = re.compile(r"(?<=<!-- generated: (?P<name>.{8}) -->\n).*?(?=<!-- end -->)", re.DOTALL)


def settings_table() -> str:
    lines = ["| setting | environment | default | allowed |", "|---|---|---|---|"]
    for setting in SETTINGS.values():
        cells = (f"`{setting.name}`", f"`{setting.environment}`", _default(setting), setting.allowed)
        lines.append("| " + " | ".join(cells) + " |")
    lines.append("")
    lines.extend(f"- **`{setting.name}`**: {setting.help}" for setting in SETTINGS.values())
    return "\n".join(lines)


def _default(setting: Setting) -> str:
    value = setting.default
    if value is None:
        return f"none ({setting.none_means})"
    if setting.kind is Kind.TEXT:
        return f"`{value}`"
    if setting.kind is Kind.SWITCH:
        return str(value).lower()
    return f"{value:,.15g}"


def commands(command: click.Command, context: click.Context) -> Iterator[tuple[click.Command, click.Context]]:
    """A command and everything below it."""
    yield command, context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from commands(child, click.Context(child, info_name=name, parent=context))


def every_command() -> list[tuple[click.Command, click.Context]]:
    return list(commands(root, click.Context(root, info_name="windlass")))


def command_list() -> str:
    return "\n\n".join(_describe(command, context) for command, context in every_command())


def _describe(command: click.Command, context: click.Context) -> str:
    usage = " ".join(command.collect_usage_pieces(context))
    parts = [f"## `{context.command_path}`", f"```text\n{context.command_path} {usage}\n```"]
    if command.help:
        paragraphs = command.help.replace("\b\n", "").split("\n\n")
        parts.extend(_one_sentence_per_line(" ".join(text.split())) for text in paragraphs)
    if options := [row for row in map(_option, command.get_params(context)) if row]:
        parts.append("\n".join(["| option | meaning |", "|---|---|", *options]))
    return "\n\n".join(parts)


def _one_sentence_per_line(text: str) -> str:
    return re.sub(r"(?<=[.:]) (?=[A-Z])", "\n", text)


def _option(parameter: click.Parameter) -> str:
    if not isinstance(parameter, click.Option) or parameter.hidden or parameter.name == "help":
        return ""
    names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
    value = "" if parameter.is_flag or parameter.count else f" {parameter.metavar or parameter.type.name.upper()}"
    default = ""
    if parameter.show_default and parameter.default is not None:
        default = f" Default: {parameter.default}."
    meaning = f"{' '.join((parameter.help or '').split())}{default}".replace("|", "\\|")
    return f"| {names}{value} | {meaning} |"


PARTS: dict[str, tuple[Path, Callable[[], str]]] = {
    "settings": (ROOT / "docs/reference/settings.md", settings_table),
    "commands": (ROOT / "docs/reference/cli.md", command_list),
}


def renewed(name: str) -> tuple[str, str]:
    """A page as it is, and as it should be."""
    page, make = PARTS[name]
    text = page.read_text("utf-8")
    found = [part for part in _part.finditer(text) if part["name"] == name]
    assert len(found) == 1, f"{page.name} has {len(found)} parts generated: {name}"
    return text, text[: found[0].start()] + make() + "\n" + text[found[0].end() :]


def main() -> None:
    for name, (page, _) in PARTS.items():
        page.write_text(renewed(name)[1], "utf-8")


if __name__ == "__main__":
    main()
