#!/usr/bin/env python3
# ruff: noqa
"""Rename what renames.toml lists, package by package: ``python scripts/rename_symbols.py PREFIX``, e.g. ``stores.sqlite``.

Temporary, like renames.toml. Renames top-level names with their imports, module attributes and mentions in comments,
docstrings and documents, and members whose name only one class defines. Prints what it leaves to a person: members that
several classes define, local names that hide a new name, strings. Parameters ("function()name") are left out.
Run ruff, mypy and the suite afterwards.
"""

from __future__ import annotations
import ast, collections, io, re, subprocess, sys, tokenize, tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PKG = "tidewheel"
SRC = ROOT / "src"
SYM = {
    key: new
    for key, new in tomllib.loads((ROOT / "renames.toml").read_text("utf-8"))["symbols"].items()
    if key.startswith(sys.argv[1]) and "(" not in key
}
report = []
git = lambda *a: (
    subprocess.run(["git", "-C", str(ROOT), *a], capture_output=True, text=True, check=True).stdout
)
tracked = [
    ROOT / n
    for n in git("ls-files", "-z").split("\0")
    if n and (ROOT / n).is_file() and not (ROOT / n).is_symlink()
]


def modname(p):
    if SRC in p.parents:
        return ".".join(p.relative_to(SRC).with_suffix("").parts).removesuffix(".__init__")
    return ".".join(p.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


class F:
    def __init__(s, p):
        s.path = p
        s.text = p.read_text()
        s.mod = modname(p)
        s.tree = ast.parse(s.text)
        s.edits = {}
        s.lines = s.text.splitlines(keepends=True)
        s.starts = [0]
        for l in s.lines:
            s.starts.append(s.starts[-1] + len(l))
        s.nodes = list(ast.walk(s.tree))

    def pos(s, line, col):
        return s.starts[line - 1] + len(s.lines[line - 1].encode()[:col].decode())

    def span(s, n):
        return s.pos(n.lineno, n.col_offset), s.pos(n.end_lineno, n.end_col_offset)

    def edit(s, a, old, new):
        assert s.text[a : a + len(old)] == old, (s.path, a, old, s.text[a : a + 30])
        s.edits[a] = (a + len(old), new)

    def edit_def(s, n, old, new):
        a = s.span(n)[0]
        m = re.compile(rf"\b(?:def|class)\s+({re.escape(old)})\b").search(s.text, a)
        s.edit(m.start(1), old, new)

    def apply(s):
        out, last = [], 0
        for a in sorted(s.edits):
            b, t = s.edits[a]
            out += [s.text[last:a], t]
            last = b
        s.path.write_text("".join(out) + s.text[last:])


files = [F(p) for p in tracked if p.suffix == ".py"]
by = {f.mod: f for f in files}
top, attrs, star = {}, {}, {}
for k, v in SYM.items():
    m, _, n = k.partition(":")
    if m == "*":
        star[n] = v
        continue
    m = f"{PKG}.{m}" if m else PKG
    if m not in by:
        report.append(f"no module {k}")
        continue
    if "." in n:
        attrs[m, *n.split(".", 1)] = v
    else:
        top[m, n] = v


def top_defs(tree):
    out = set()
    for n in tree.body:
        if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            out.add(n.name)
        elif isinstance(n, ast.Assign):
            for t in n.targets:
                for x in ast.walk(t):
                    if isinstance(x, ast.Name):
                        out.add(x.id)
        elif isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name):
            out.add(n.target.id)
        elif isinstance(n, ast.If):
            out |= top_defs(n)
    return out


for (m, n), v in list(top.items()):
    if n not in top_defs(by[m].tree):
        report.append(f"{m}:{n} is not defined there")
        del top[m, n]
        continue
    if v in top_defs(by[m].tree) and (m, v) not in top:
        report.append(f"{m}:{v} exists already; {n} kept")
        del top[m, n]
# re-exports
defs = dict(top)
todo = list(top)
while todo:
    m, n = todo.pop()
    for f in files:
        for node in f.nodes:
            if isinstance(node, ast.ImportFrom) and node.module == m and not node.level:
                for a in node.names:
                    if a.name == n and not a.asname and (f.mod, n) not in defs:
                        defs[f.mod, n] = defs[m, n]
                        todo.append((f.mod, n))
distinct = lambda n: bool(re.search(r"[a-z][A-Z]", n)) or "_" in n.strip("_")


def locals_of(fn):
    args = {
        a.arg
        for a in [*fn.args.posonlyargs, *fn.args.args, *fn.args.kwonlyargs, fn.args.vararg, fn.args.kwarg]
        if a
    }
    glob = set()

    def walk(n):
        for c in ast.iter_child_nodes(n):
            if isinstance(c, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                args.add(c.name)
                continue
            if isinstance(c, ast.Lambda):
                continue
            if isinstance(c, (ast.Global, ast.Nonlocal)):
                glob.update(c.names)
            if isinstance(c, ast.Name) and isinstance(c.ctx, (ast.Store, ast.Del)):
                args.add(c.id)
            if isinstance(c, ast.ExceptHandler) and c.name:
                args.add(c.name)
            if isinstance(c, (ast.MatchAs, ast.MatchStar)) and c.name:
                args.add(c.name)
            walk(c)

    if not isinstance(fn, ast.Lambda):
        walk(fn)
    return args - glob


words = collections.defaultdict(dict)  # file -> {old: new} for prose


def rename_in(f, names):
    """Rename global names {old: new} in this file, scope aware."""

    def walk(node, hidden):
        for c in ast.iter_child_nodes(node):
            h = hidden
            if isinstance(c, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
                h = hidden | (locals_of(c) & names.keys())
                if locals_of(c) & names.keys():
                    report.append(
                        f"{f.path.relative_to(ROOT)}:{c.lineno}: local {locals_of(c) & names.keys()} hides a renamed name"
                    )
                if locals_of(c) & set(names.values()):
                    report.append(
                        f"{f.path.relative_to(ROOT)}:{c.lineno}: local {locals_of(c) & set(names.values())} hides the NEW name"
                    )
            if isinstance(c, ast.Name) and c.id in names and c.id not in h:
                f.edit(f.span(c)[0], c.id, names[c.id])
            if isinstance(c, ast.Global):
                for g in c.names:
                    if g in names:
                        a = f.text.index(g, f.span(c)[0] + 6)
                        f.edit(a, g, names[g])
            walk(c, h)
        if isinstance(node, ast.Module):
            for d in [x for b in [node.body] for x in b]:
                if isinstance(d, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and d.name in names:
                    f.edit_def(d, d.name, names[d.name])

    walk(f.tree, set())
    # string annotations and __all__
    for n in f.nodes:
        if isinstance(n, ast.Assign) and any(
            isinstance(t, ast.Name) and t.id == "__all__" for t in n.targets
        ):
            for c in ast.walk(n.value):
                if isinstance(c, ast.Constant) and c.value in names:
                    f.edit(f.span(c)[0] + 1, c.value, names[c.value])
    words[f].update(names)


for f in files:
    names = {n: v for (m, n), v in top.items() if m == f.mod}
    have = top_defs(f.tree)
    for node in f.nodes:
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for a in node.names:
                if (node.module, a.name) in defs:
                    new = defs[node.module, a.name]
                    f.edit(f.span(a)[0], a.name, new)
                    if not a.asname:
                        names[a.name] = new
                        if new in have and new not in names:
                            report.append(f"{f.path.relative_to(ROOT)}: {new} is defined and imported")
    # module attribute access
    modobj = {}
    for node in f.nodes:
        if isinstance(node, ast.ImportFrom) and node.module:
            for a in node.names:
                t = f"{node.module}.{a.name}"
                if t in by:
                    modobj[a.asname or a.name] = t
    for node in f.nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modobj:
            k = (modobj[node.value.id], node.attr)
            if k in defs:
                f.edit(f.span(node)[1] - len(node.attr), node.attr, defs[k])
                words[f][node.attr] = defs[k]
    if names:
        rename_in(f, names)
# members
definers = collections.defaultdict(set)
for f in files:
    for c in f.nodes:
        if isinstance(c, ast.ClassDef):
            for b in c.body:
                if isinstance(b, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    definers[b.name].add((f.mod, c.name))
                elif isinstance(b, ast.AnnAssign) and isinstance(b.target, ast.Name):
                    definers[b.target.id].add((f.mod, c.name))
                elif isinstance(b, ast.Assign):
                    for t in b.targets:
                        if isinstance(t, ast.Name):
                            definers[t.id].add((f.mod, c.name))
            for x in ast.walk(c):
                if (
                    isinstance(x, ast.Attribute)
                    and isinstance(x.value, ast.Name)
                    and x.value.id == "self"
                    and isinstance(x.ctx, ast.Store)
                ):
                    definers[x.attr].add((f.mod, c.name))
wanted = collections.defaultdict(set)
who = collections.defaultdict(set)
for (m, c, a), v in attrs.items():
    wanted[a].add(v)
    who[a].add((m, c))
ren, local = dict(star), collections.defaultdict(dict)
for a, vs in wanted.items():
    if a in star:
        continue
    rest = definers[a] - who[a]
    if not (who[a] & definers[a]):
        report.append(f"member {who[a]}.{a} not found")
        continue
    if len(vs) == 1 and not rest:
        ren[a] = next(iter(vs))
    elif a.startswith("_") and not a.startswith("__"):
        for m, c in who[a]:
            fs = {x for x in definers[a] if x[0] == m}
            if fs <= who[a]:
                local[m][a] = attrs[m, c, a]
            else:
                report.append(f"ambiguous private {m}.{c}.{a}")
        # only in the defining files; other files that touch it are reported by mypy
    else:
        report.append(f"AMBIGUOUS member {a} -> {sorted(vs)}: also defined in {sorted(rest)[:6]}")
for f in files:
    r = {**ren, **local.get(f.mod, {})}
    if not r:
        continue
    kw = {k: v for k, v in r.items() if not k.startswith("_")}
    for n in f.nodes:
        if isinstance(n, ast.Attribute) and n.attr in r:
            f.edit(f.span(n)[1] - len(n.attr), n.attr, r[n.attr])
        elif isinstance(n, ast.ClassDef):
            for b in n.body:
                if isinstance(b, (ast.FunctionDef, ast.AsyncFunctionDef)) and b.name in r:
                    f.edit_def(b, b.name, r[b.name])
                elif isinstance(b, ast.AnnAssign) and isinstance(b.target, ast.Name) and b.target.id in r:
                    f.edit(f.span(b.target)[0], b.target.id, r[b.target.id])
                elif isinstance(b, ast.Assign):
                    for t in b.targets:
                        if isinstance(t, ast.Name) and t.id in r:
                            f.edit(f.span(t)[0], t.id, r[t.id])
        elif isinstance(n, ast.keyword) and n.arg in kw and n.arg not in star:
            f.edit(f.span(n)[0], n.arg, kw[n.arg])
        elif isinstance(n, ast.MatchClass):
            for k, p in zip(n.kwd_attrs, n.kwd_patterns):
                if k in r:
                    a = f.text.rindex(k, 0, f.span(p)[0])
                    f.edit(a, k, r[k])
    words[f].update(r)


# prose and strings
def prose_sub(text, names, ticks_only=False):
    for o, n in names.items():
        if distinct(o) and not ticks_only:
            text = re.sub(rf"(?<![\w.]){re.escape(o)}\b(?!\s*=\s)", n, text)
        else:
            text = re.sub(
                rf"(`+)((?:[\w.]+\.)?){re.escape(o)}((?:\(\))?)(`+)",
                lambda m: m.group(1) + m.group(2) + n + m.group(3) + m.group(4),
                text,
            )
    return text


for f in files:
    names = dict(words.get(f) or {})
    if not names:
        continue
    for t in tokenize.generate_tokens(io.StringIO(f.text).readline):
        doc = t.type == tokenize.COMMENT or (
            t.type == tokenize.STRING and t.string.lstrip("rRbB").startswith('"""')
        )
        if doc:
            new = prose_sub(t.string, names)
            if new != t.string:
                a = f.starts[t.start[0] - 1] + t.start[1]
                if not any(a <= x < a + len(t.string) for x in f.edits):
                    f.edit(a, t.string, new)
        elif (
            t.type == tokenize.STRING
            and t.string.strip("rb\"'") in names
            and t.string.strip("rb\"'") in (ren | {n: v for (_, n), v in top.items()})
        ):
            report.append(f"{f.path.relative_to(ROOT)}:{t.start[0]}: string {t.string}")
glob = {n: v for (_, n), v in top.items() if distinct(n)} | {n: v for n, v in ren.items() if distinct(n)}
clash = {n for n in glob if len({v for (_, k), v in top.items() if k == n}) > 1}
for p in tracked:
    if p.suffix == ".md" and p.name != "CHANGELOG.md":
        t = p.read_text()
        n = prose_sub(t, {k: v for k, v in glob.items() if k not in clash})
        if n != t:
            p.write_text(n)
for f in files:
    if f.edits:
        f.apply()
print("\n".join(dict.fromkeys(report)))
print(len(top), "names", len(ren), "members", sum(map(len, local.values())), "private members")
