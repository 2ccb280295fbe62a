"""Write ``src/windlass/blocking_twins.py`` from the async sources.

Every public ``async def`` of the classes below gets a blocking method of the same signature and docstring;
a handle's fields are passed through; methods that answer another twinned class answer its twin. Run it after
changing one of these classes: ``python scripts/make_blocking_twins.py``. A test says when it was forgotten.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "src" / "windlass"
TARGET = PACKAGE / "blocking_twins.py"


@dataclass(frozen=True)
class Source:
    """A class that gets a twin."""

    module: str
    name: str
    base: str = "Twin"
    parameters: tuple[str, ...] = ()
    fields: bool = False  # pass fields and properties through
    skip: frozenset[str] = frozenset({"sync"})

    @property
    def twin(self) -> str:
        return f"Blocking{self.name}"


SOURCES = (
    Source("job", "Job", parameters=("R",), fields=True),
    Source("task", "Task", parameters=("P", "R")),
    Source("task", "BoundTask", parameters=("P", "R")),
    Source("questions", "Questions"),
    Source("access.audit", "Audit"),
    Source("access.access", "Access", base="AccessTwin"),
    # The twin of the app opens and closes the thread behind it instead; AppTwin does that.
    Source("app", "Windlass", base="AppTwin", skip=frozenset({"open", "close"})),
)
TWINS = {source.name: source.twin for source in SOURCES}

HEADER = '''"""The twins behind ``.sync``, written by ``scripts/make_blocking_twins.py``: do not edit."""

from __future__ import annotations

'''


def generate() -> str:
    """The whole module, not yet formatted."""
    trees = {
        source.module: ast.parse((PACKAGE / f"{source.module.replace('.', '/')}.py").read_text("utf-8"))
        for source in SOURCES
    }
    classes = "\n\n".join(
        make_twin(source, find_class(trees[source.module], source.name)) for source in SOURCES
    )
    variables = 'P = ParamSpec("P")\nR = TypeVar("R")\n\n'
    return HEADER + make_imports(trees, ast.parse(classes)) + "\n" + variables + classes


def find_class(tree: ast.Module, name: str) -> ast.ClassDef:
    return next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)


def make_twin(source: Source, original: ast.ClassDef) -> str:
    parameters = ", ".join(source.parameters)
    bases = f"{source.base}[{source.name}[{parameters}]], Generic[{parameters}]"
    if not parameters:
        bases = f"{source.base}[{source.name}]"
    parts = [
        f"class {source.twin}({bases}):",
        f'    """Blocking twin of :class:`~windlass.{source.module}.{source.name}`."""',
    ]
    following = [*original.body[1:], None]
    for node, after in zip(original.body, following, strict=True):
        if isinstance(node, ast.AnnAssign) and source.fields and isinstance(node.target, ast.Name):
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
    returns = ast.unparse(node.returns) if node.returns else "None"
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


def make_imports(trees: dict[str, ast.Module], classes: ast.Module) -> str:
    nodes = list(ast.walk(classes))
    used = {node.id for node in nodes if isinstance(node, ast.Name)}
    used -= {node.arg for node in nodes if isinstance(node, ast.arg)}
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
                places[name] = f"from windlass.{module} import {name}"
    lines = {places[name] for name in used if name in places and name not in TWINS.values()}
    lines |= {"from typing import Generic", "from typing import ParamSpec", "from typing import TypeVar"}
    lines |= {
        "from windlass.blocking import AccessTwin",
        "from windlass.blocking import AppTwin",
        "from windlass.blocking import Twin",
    }
    return "\n".join(sorted(lines)) + "\n"


def main() -> None:
    TARGET.write_text(generate(), "utf-8")
    for command in (["check", "--fix", "--quiet", "--select", "I"], ["format", "--quiet"]):
        subprocess.run([sys.executable, "-m", "ruff", *command, str(TARGET)], check=True)  # noqa: S603


if __name__ == "__main__":
    main()
