"""The parts of the reference that are written by the code they describe.

``python -m tests.docs.generated`` brings them up to date; a test says when that was forgotten. A part stands
between ``<!-- generated: name -->`` and ``<!-- end -->``.
"""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import msgspec

from tests.docs.pages import ROOT
from tidewheel.cli.command_group import tidewheel as root
from tidewheel.server import openapi
from tidewheel.server.problems import PROBLEMS
from tidewheel.server.routes import ROUTES
from tidewheel.settings import SETTINGS, Setting, SettingKind
from tidewheel.telemetry.samples import CATALOGUE

COMMON = 3
"""Options that this many commands share are described once."""

_long_names = re.compile(r"`(--[\w-]+)`")


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
    if setting.kind is SettingKind.TEXT:
        return f"`{value}`" if value else f"nothing ({setting.empty_means})"
    if setting.kind is SettingKind.LIST:
        return ", ".join(f"`{item}`" for item in value) or "none"
    if setting.kind is SettingKind.SWITCH:
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
    return list(commands(root, click.Context(root, info_name="tidewheel")))


def command_list() -> str:
    listed = every_command()
    seen = Counter(row for command, context in listed for row in _options(command, context))
    common = {row for row, times in seen.items() if times >= COMMON}
    parts = [_describe(command, context, common) for command, context in listed]
    shared = [row for row in seen if row in common]
    parts.append("## Common options\n\nThe commands above say which of these they have.\n\n" + _table(shared))
    return "\n\n".join(parts)


def _describe(command: click.Command, context: click.Context, common: set[str]) -> str:
    # Put together by hand: releases of click differ in how they write a usage line.
    taken = [parameter for parameter in command.get_params(context) if isinstance(parameter, click.Argument)]
    usage = [context.command_path, "[OPTIONS]", *(a.metavar or (a.name or "").upper() for a in taken)]
    if isinstance(command, click.Group):
        usage.append("COMMAND [ARGS]...")
    parts = [f"## `{context.command_path}`", f"```text\n{' '.join(usage)}\n```"]
    if command.help:
        paragraphs = command.help.replace("\b\n", "").split("\n\n")
        parts.extend(_one_sentence_per_line(" ".join(text.split())) for text in paragraphs)
    options = _options(command, context)
    if own := [row for row in options if row not in common]:
        parts.append(_table(own))
    if shared := [f"`{name}`" for row in options if row in common for name in _long_names.findall(row)]:
        parts.append(f"Also {', '.join(shared)}: see [common options](#common-options).")
    return "\n\n".join(parts)


def _table(rows: list[str]) -> str:
    return "\n".join(["| option | meaning |", "|---|---|", *rows])


def _one_sentence_per_line(text: str) -> str:
    return re.sub(r"(?<=[.:]) (?=[A-Z])", "\n", text)


def _options(command: click.Command, context: click.Context) -> list[str]:
    return [
        _option(parameter)
        for parameter in command.get_params(context)
        if isinstance(parameter, click.Option) and not parameter.hidden and "--help" not in parameter.opts
    ]


def _option(option: click.Option) -> str:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    value = "" if option.is_flag or option.count else f" {_value_of(option)}"
    default = f" Default: {option.default}." if option.show_default else ""
    meaning = f"{' '.join((option.help or '').split())}{default}".replace("|", "\\|")
    return f"| {names}{value} | {meaning} |"


def _value_of(option: click.Option) -> str:
    if isinstance(option.type, click.Choice) and not option.metavar:
        return " or ".join(str(choice) for choice in option.type.choices)
    return option.metavar or ("NUMBER" if isinstance(option.type, click.IntRange) else "TEXT")


def route_list() -> str:
    """Every route: what it is for, who may, what goes in and comes out."""
    parts = []
    for route in ROUTES:
        path = openapi.openapi_path(route.path)
        parts.append(
            f"### `{route.method} {path}`\n\n{route.summary}.\n{openapi.PERMISSION_TEXTS[route.permission]}"
        )
        if route.aliases:
            others = ", ".join(f"`{openapi.openapi_path(alias)}`" for alias in route.aliases)
            parts.append(f"Also {others}.")
        names = [f"`{field.encode_name}`" for field in msgspec.structs.fields(route.query)]
        if names:
            parts.append(f"Parameters: {', '.join(names)}.")
        if route.body is not None:
            names = [f"`{field.encode_name}`" for field in msgspec.structs.fields(route.body)]
            parts.append(f"Body: {', '.join(names)}.")
        for name, meaning in route.parameters.items():
            parts.append(f"Header `{name}`: {meaning}")
        statuses = ", ".join(
            f"{status} `{kind.__name__}`" if kind is not None else str(status)
            for status, kind in sorted(route.responses.items())
        )
        own = ", ".join(f"`{kind.code}`" for kind in route.problems)
        parts.append(f"Answers: {statuses}{f'; problems of its own: {own}' if own else ''}.")
    return "\n\n".join(parts)


def problem_list() -> str:
    lines = ["| status | code | meaning |", "|---|---|---|"]
    kinds = sorted(PROBLEMS.values(), key=lambda kind: (kind.status, kind.code))
    lines.extend(f"| {kind.status} | `{kind.code}` | {kind.meaning} |" for kind in kinds)
    return "\n".join(lines)


def metric_table() -> str:
    lines = ["| metric | kind | labels | meaning |", "|---|---|---|---|"]
    for metric in CATALOGUE.values():
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        lines.append(f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} |")
    return "\n".join(lines)


OPENAPI = ROOT / "docs/reference/openapi.json"


def openapi_text() -> str:
    """The OpenAPI document as it is committed: one line for each value, so that changes can be read."""
    return json.dumps(openapi.build_document(ROUTES), indent=1, ensure_ascii=False) + "\n"


def code_map() -> str:
    """Every module by package, with the first sentence of its docstring."""
    source = ROOT / "src/tidewheel"
    packages: dict[Path, list[Path]] = {}
    for path in sorted(source.rglob("*.py")):
        packages.setdefault(path.parent.relative_to(source), []).append(path)
    lines = []
    for package, paths in sorted(packages.items()):
        if paths[0].name == "__init__.py" and len(paths) == 1 and not paths[0].read_text("utf-8"):
            continue  # a directory of SQL files
        name = ".".join(("tidewheel", *package.parts))
        lines += [f"## {name}", "", "| module | |", "|---|---|"]
        for path in paths:
            text = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
            paragraph = " ".join(text.partition("\n\n")[0].split())
            sentence = re.split(r"(?<=[.!?])\s+(?=[A-Z`])", paragraph)[0].replace("|", "\\|")
            lines.append(f"| `{path.relative_to(source).as_posix()}` | {sentence} |")
        lines.append("")
    return "\n".join(lines).rstrip()


PARTS: dict[str, tuple[Path, Callable[[], str]]] = {
    "settings": (ROOT / "docs/reference/settings.md", settings_table),
    "commands": (ROOT / "docs/reference/cli.md", command_list),
    "routes": (ROOT / "docs/reference/http-api.md", route_list),
    "metrics": (ROOT / "docs/reference/metrics.md", metric_table),
    "problems": (ROOT / "docs/reference/http-problems.md", problem_list),
    "modules": (ROOT / "docs/reference/code-map.md", code_map),
}


def renewed(name: str) -> tuple[str, str]:
    """A page as it is, and as it should be."""
    page, make = PARTS[name]
    text = page.read_text("utf-8")
    before, start, rest = text.partition(f"<!-- generated: {name} -->\n")
    _, end, after = rest.partition("<!-- end -->")
    assert end, f"{page.name} has no part generated: {name}"
    return text, f"{before}{start}{make()}\n{end}{after}"


def main() -> None:
    for name, (page, _) in PARTS.items():
        page.write_text(renewed(name)[1], "utf-8")
    OPENAPI.write_text(openapi_text(), "utf-8")


if __name__ == "__main__":
    main()
