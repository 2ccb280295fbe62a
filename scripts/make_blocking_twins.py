"""Write the blocking API of ``client/sync`` from the async sources.

Every public ``async def`` of the classes below gets a blocking method of the same signature and docstring;
a handle's fields are passed through; methods that answer another twinned class answer its twin. Run it after
changing one of these classes: ``python scripts/make_blocking_twins.py``. A test says when it was forgotten.

At run time a twin imports other twins and what its default values are made of. It imports the module of its
class for type checkers only, so that this module can import the twin at the top of the file.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "src" / "tidewheel"


@dataclass(frozen=True)
class Source:
    """A class that gets a twin."""

    module: str
    name: str
    base: str = "BlockingWrapper"
    parameters: tuple[str, ...] = ()
    fields: bool = False  # pass fields and properties through
    skip: frozenset[str] = frozenset({"sync"})
    target: str = "client.sync.blocking_app"  # the module its twin is written to

    @property
    def twin(self) -> str:
        return f"Blocking{self.name}"


SOURCES = (
    Source("client.job_handle", "Job", parameters=("R",), fields=True, target="client.sync.blocking_jobs"),
    Source("tasks.task", "Task", parameters=("P", "R"), target="client.sync.blocking_jobs"),
    Source("tasks.task", "BoundTask", parameters=("P", "R"), target="client.sync.blocking_jobs"),
    Source("admin.reports.questions", "Questions"),
    Source("admin.topic_controls", "TopicLimitControls"),
    Source("schedules.manager", "Schedules"),
    Source("pull.reserved_job", "Reserved", fields=True, target="client.sync.blocking_queue"),
    Source(
        "pull.queue",
        "Queue",
        skip=frozenset({"sync", "template", "on_wire", "depths", "rescue"}),
        target="client.sync.blocking_queue",
    ),
    Source("access.audit_log", "AuditLog", target="client.sync.blocking_access"),
    Source("access.access_control", "Access", target="client.sync.blocking_access"),
    # The twin of the app opens and closes the thread behind it instead; BlockingAppBase does that.
    Source("app", "Tidewheel", base="BlockingAppBase", skip=frozenset({"open", "close"})),
)
TWINS = {source.name: source.twin for source in SOURCES}
TARGETS = tuple(dict.fromkeys(source.target for source in SOURCES))

AWAITED = "Coroutine[Any, Any, "

HEADER = '''"""The twins behind ``.sync``, written by ``scripts/make_blocking_twins.py``: do not edit."""

from __future__ import annotations

'''


def path_of(module: str) -> Path:
    return PACKAGE / f"{module.replace('.', '/')}.py"


def generate(target: str) -> str:
    """One whole module, not yet formatted."""
    sources = [source for source in SOURCES if source.target == target]
    trees = {source.module: ast.parse(path_of(source.module).read_text("utf-8")) for source in sources}
    for tree in trees.values():
        write_out_defaults(tree)
    classes = "\n\n".join(
        make_twin(source, find_class(trees[source.module], source.name)) for source in sources
    )
    generic = any(source.parameters for source in sources)
    variables = 'P = ParamSpec("P")\nR = TypeVar("R")\n\n' if generic else ""
    return HEADER + make_imports(trees, ast.parse(classes), generic=generic) + "\n" + variables + classes


def write_out_defaults(tree: ast.Module) -> None:
    """Put numbers and texts in place of the module's own constants where these are default values.

    The twin then needs no import of the module at run time.
    """
    constants = {
        node.target.id: node.value
        for node in tree.body
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and isinstance(node.value, ast.Constant)
    }

    def written_out(default: ast.expr | None) -> ast.expr | None:
        return constants.get(default.id, default) if isinstance(default, ast.Name) else default

    for node in ast.walk(tree):
        if isinstance(node, ast.arguments):
            node.defaults = [written_out(default) or default for default in node.defaults]
            node.kw_defaults = [written_out(default) for default in node.kw_defaults]


def find_class(tree: ast.Module, name: str) -> ast.ClassDef:
    return next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)


def make_twin(source: Source, original: ast.ClassDef) -> str:
    parameters = ", ".join(source.parameters)
    # The class is named in a string, so that its module is imported by type checkers only.
    bases = f'{source.base}["{source.name}[{parameters}]"], Generic[{parameters}]'
    if not parameters:
        bases = f'{source.base}["{source.name}"]'
    parts = [
        f"class {source.twin}({bases}):",
        f'    """Blocking twin of :class:`~tidewheel.{source.module}.{source.name}`."""',
    ]
    following = [*original.body[1:], None]
    awaited: dict[str, ast.FunctionDef] = {}  # overloads that answer a coroutine, until their body comes
    for node, after in zip(original.body, following, strict=True):
        if isinstance(node, ast.FunctionDef) and is_awaited_overload(node):
            awaited.setdefault(node.name, node)
        elif isinstance(node, ast.FunctionDef) and not node.decorator_list and node.name in awaited:
            parts.append(make_awaited(awaited[node.name], node))
        elif isinstance(node, ast.AnnAssign) and source.fields and isinstance(node.target, ast.Name):
            parts.append(make_field(node.target.id, ast.unparse(node.annotation), text_of(after)))
        elif isinstance(node, ast.AsyncFunctionDef | ast.FunctionDef):
            parts.append(make_method(source, node))
    return "\n".join(part for part in parts if part) + "\n"


def make_method(source: Source, node: ast.AsyncFunctionDef | ast.FunctionDef) -> str:
    """The twin of one method; empty for one that needs none."""
    if node.name.startswith("_") or node.name in source.skip:
        return ""
    decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
    docstring = ast.get_docstring(node, clean=False)
    returns = returned(node)
    if decorators == ["property"] and returns in TWINS:
        answer = f"return {wrapped(returns, f'self._inner.{node.name}')}"
        return "    @property\n" + make_function(
            f"{node.name}(self) -> {blocking(returns)}", docstring, answer
        )
    if decorators == ["property"]:
        return make_field(node.name, returns, docstring) if source.fields else ""
    if decorators:
        return ""  # overloads
    arguments = forwarded(node.args)
    if isinstance(node, ast.AsyncFunctionDef):
        call = f"self._portal.run({', '.join([f'self._inner.{node.name}', *arguments])})"
    elif returns.partition("[")[0] in TWINS:
        call = f"self._inner.{node.name}({', '.join(arguments)})"
    else:
        return ""  # no I/O: the async class serves blocking code as it is
    answer = call if returns == "None" else f"return {wrapped(returns, call)}"
    return make_function(f"{node.name}({ast.unparse(node.args)}) -> {blocking(returns)}", docstring, answer)


def is_awaited_overload(node: ast.FunctionDef) -> bool:
    overloaded = [ast.unparse(decorator) for decorator in node.decorator_list] == ["overload"]
    return overloaded and returned(node).startswith(AWAITED)


def make_awaited(overload: ast.FunctionDef, body: ast.FunctionDef) -> str:
    """The twin of an overloaded method, by its way that is awaited: without a connection of the caller's."""
    arguments = overload.args
    pairs = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    kept = [(argument, default) for argument, default in pairs if argument.arg != "using"]
    arguments.kwonlyargs, arguments.kw_defaults = [pair[0] for pair in kept], [pair[1] for pair in kept]
    returns = returned(overload).removeprefix(AWAITED).removesuffix("]")
    # A function around it: type checkers cannot choose among overloads by what they are called with later.
    call = f"self._portal.run(lambda: self._inner.{overload.name}({', '.join(forwarded(arguments))}))"
    head = f"{overload.name}({ast.unparse(arguments)}) -> {blocking(returns)}"
    docstring = (ast.get_docstring(body, clean=False) or "").partition("\n\n        ``using``")[0]
    if "\n" in docstring:
        docstring += "\n        "
    return make_function(head, docstring, f"return {wrapped(returns, call)}")


def returned(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    return ast.unparse(node.returns) if node.returns else "None"


def make_field(name: str, annotation: str, docstring: str | None) -> str:
    return "    @property\n" + make_function(
        f"{name}(self) -> {annotation}", docstring, f"return self._inner.{name}"
    )


def make_function(head: str, docstring: str | None, answer: str) -> str:
    text = f'        """{docstring}"""\n' if docstring is not None else ""
    return f"    def {head}:\n{text}        {answer}\n"


def forwarded(arguments: ast.arguments) -> list[str]:
    given = [argument.arg for argument in [*arguments.posonlyargs, *arguments.args][1:]]
    if arguments.vararg:
        given.append(f"*{arguments.vararg.arg}")
    given.extend(f"{argument.arg}={argument.arg}" for argument in arguments.kwonlyargs)
    if arguments.kwarg:
        given.append(f"**{arguments.kwarg.arg}")
    return given


def wrapped(returns: str, call: str) -> str:
    """The expression that turns an async answer into a blocking one."""
    outer, _, rest = returns.partition("[")
    if outer in TWINS and returns.endswith(" | None"):
        return f"None if (answer := {call}) is None else {TWINS[outer]}(answer, self._portal)"
    if outer in TWINS:
        return f"{TWINS[outer]}({call}, self._portal)"
    inner = rest.partition("[")[0]
    if inner in TWINS and outer == "list":
        return f"[{TWINS[inner]}(item, self._portal) for item in {call}]"
    if inner in TWINS and outer == "JobPage":
        return f"{call}.map(lambda item: {TWINS[inner]}(item, self._portal))"
    if blocking(returns) != returns:
        raise NotImplementedError(f"no rule turns {returns} into a blocking answer; add one")
    return call


def blocking(returns: str) -> str:
    tree = ast.parse(returns, mode="eval")
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            node.id = TWINS.get(node.id, node.id)
    return ast.unparse(tree)


def text_of(node: ast.stmt | None) -> str | None:
    """A field's docstring: the text that follows it."""
    if (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    ):
        return node.value.value
    return None


def make_imports(trees: dict[str, ast.Module], classes: ast.Module, *, generic: bool) -> str:
    """The imports of a module. Those of this package are for type checkers, unless run time needs them."""
    used, for_types = names_in(classes)
    places: dict[str, str] = {}
    for module, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module != "__future__":
                for alias in node.names:
                    places.setdefault(alias.asname or alias.name, f"from {node.module} import {alias.name}")
        for node in tree.body:
            target = node.target if isinstance(node, ast.AnnAssign) else None
            name = (
                node.name
                if isinstance(node, ast.ClassDef)
                else target.id
                if isinstance(target, ast.Name)
                else None
            )
            if name is not None:
                places[name] = f"from tidewheel.{module} import {name}"
    places |= {source.twin: f"from tidewheel.{source.target} import {source.twin}" for source in SOURCES}
    places |= {
        base: f"from tidewheel.client.sync.portal import {base}"
        for base in ("BlockingAppBase", "BlockingWrapper")
    }
    made_here = {node.name for node in classes.body if isinstance(node, ast.ClassDef)}
    lines = {places[name] for name in used - made_here if name in places}
    typing_only = {places[name] for name in for_types - used - made_here if name in places}
    standard = {line for line in typing_only if not line.startswith("from tidewheel.")}
    lines |= standard | {"from typing import TYPE_CHECKING"}
    if generic:
        lines |= {"from typing import Generic", "from typing import ParamSpec", "from typing import TypeVar"}
    text = "\n".join(sorted(lines)) + "\n"
    return text + "if TYPE_CHECKING:\n" + "".join(f"    {line}\n" for line in sorted(typing_only - standard))


def names_in(classes: ast.Module) -> tuple[set[str], set[str]]:
    """The names that are looked up at run time, and those in annotations and in the strings of bases."""
    annotations: list[ast.AST] = []
    for node in ast.walk(classes):
        if isinstance(node, ast.FunctionDef) and node.returns is not None:
            annotations.append(node.returns)
        elif isinstance(node, ast.arg) and node.annotation is not None:
            annotations.append(node.annotation)
    inside = {id(inner) for annotation in annotations for inner in ast.walk(annotation)}
    bases = [base for node in classes.body if isinstance(node, ast.ClassDef) for base in node.bases]
    quoted = [
        ast.parse(inner.value, mode="eval")
        for base in bases
        for inner in ast.walk(base)
        if isinstance(inner, ast.Constant) and isinstance(inner.value, str)
    ]
    arguments = {node.arg for node in ast.walk(classes) if isinstance(node, ast.arg)}
    used = {node.id for node in ast.walk(classes) if isinstance(node, ast.Name) and id(node) not in inside}
    for_types = {
        node.id for tree in [*annotations, *quoted] for node in ast.walk(tree) if isinstance(node, ast.Name)
    }
    return used - arguments, for_types


def main() -> None:
    for target in TARGETS:
        path = path_of(target)
        path.write_text(generate(target), "utf-8")
        for command in (["check", "--fix", "--quiet", "--select", "I"], ["format", "--quiet"]):
            subprocess.run([sys.executable, "-m", "ruff", *command, str(path)], check=True)  # noqa: S603


if __name__ == "__main__":
    main()
