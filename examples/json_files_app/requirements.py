"""Requirements in JSON files, the prompt of each in a text file beside them, and the jobs in SQLite.

An edit is accepted by writing a job, and that is all that happens while the user waits. The job's handler
changes the files, in an order in which every moment is consistent, as often as it takes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from tidewheel import Context, InvalidInput, Tidewheel
from tidewheel.builtin import Roots, remove_file, write_file

try:
    import fcntl
except ImportError:  # Windows: let one worker run one job at a time there, with --concurrency 1
    fcntl = None  # type: ignore[assignment]

DATA = Path("data")
DATA.mkdir(exist_ok=True)

app = Tidewheel()
roots = Roots(DATA)

Name = Annotated[str, Meta(pattern=r"^[a-z0-9]{1,50}$")]


# -- the handlers ---------------------------------------------------------------------------------------


@app.task
def save_requirement(ctx: Context, name: Name, title: str, text: str) -> str:
    """Write a requirement and its prompt."""
    prompt = f"prompts/{name}-{digest(text.encode())}.txt"
    with one_at_a_time():
        if overtaken(ctx, name):
            return "overtaken"
        # First what nobody refers to yet. It has a name of its own, so the old prompt stays as it is.
        write_file(ctx, roots, prompt, text.encode())
        # The one moment in which the old requirement becomes the new one.
        put_model(ctx, name, {"title": title, "prompt": prompt})
        # Last what nobody refers to any more.
        remove_prompts(ctx, name, but=prompt)
    return "saved"


@app.task
def delete_requirement(ctx: Context, name: Name) -> str:
    """Leave a mark in the place of a requirement, so that an older edit cannot bring it back."""
    with one_at_a_time():
        if overtaken(ctx, name):
            return "overtaken"
        put_model(ctx, name, {"deleted": True})
        remove_prompts(ctx, name)
    return "deleted"


# -- the files ------------------------------------------------------------------------------------------


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Whoever compares revisions and then writes must be alone. The lock ends with its process."""
    with (DATA / ".lock").open("w") as lock:
        if fcntl is not None:
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def overtaken(ctx: Context, name: str) -> bool:
    """Whether a later edit is there already: ids of jobs grow with time, so they are good revisions."""
    model = load(name)
    return model is not None and model["revision"] > str(ctx.job.id)


def put_model(ctx: Context, name: str, model: dict[str, Any]) -> None:
    content = json.dumps({"name": name, "revision": str(ctx.job.id), **model}, indent=2)
    write_file(ctx, roots, f"requirements/{name}.json", content.encode(), overwrite=True)


def remove_prompts(ctx: Context, name: str, but: str = "") -> None:
    for path in sorted((DATA / "prompts").glob(f"{name}-*.txt")):
        if f"prompts/{path.name}" != but:
            remove_file(ctx, roots, f"prompts/{path.name}")


def load(name: str) -> dict[str, Any] | None:
    try:
        model: dict[str, Any] = json.loads((DATA / "requirements" / f"{name}.json").read_bytes())
    except FileNotFoundError:
        return None
    return model


def read(name: str) -> dict[str, Any] | None:
    """A requirement with its prompt."""
    for _ in range(100):
        model = load(name)
        if model is None or model.get("deleted"):
            return None
        try:
            text = (DATA / model["prompt"]).read_text("utf-8")
        except FileNotFoundError:
            continue  # the requirement was changed since it was loaded: look again
        return {"name": name, "title": model["title"], "text": text}
    raise RuntimeError(f"the prompt of {name} is missing")


def disagreements() -> list[str]:
    """What must never be found, whatever was killed when: a requirement without its prompt."""
    found = []
    with one_at_a_time():
        for path in sorted((DATA / "requirements").glob("*.json")):
            model = json.loads(path.read_bytes())
            if not model.get("deleted"):
                prompt = DATA / model["prompt"]
                if not prompt.exists() or digest(prompt.read_bytes()) not in prompt.name:
                    found.append(f"{path.name} has no good prompt")
    return found


def leftovers() -> list[str]:
    """What may be found while jobs are outstanding, and not after: files that nobody refers to."""
    models = (json.loads(path.read_bytes()) for path in (DATA / "requirements").glob("*.json"))
    wanted = {str(DATA / model["prompt"]) for model in models if "prompt" in model}
    files = (path for path in DATA.rglob("*") if path.is_file() and path.name != ".lock")
    return sorted(str(path) for path in files if path.suffix != ".json" and str(path) not in wanted)


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


# -- the web --------------------------------------------------------------------------------------------


class Door(BaseHTTPRequestHandler):
    """Edits are enqueued, files are read, and nothing else is done here."""

    def do_POST(self) -> None:
        try:
            length = int(self.headers.get("Content-Length", 0))
            body = json.loads(self.rfile.read(max(0, min(length, 100_000))))
            job = save_requirement.sync.enqueue(name=self.name, title=body["title"], text=body["text"])
        except (InvalidInput, ValueError, LookupError, TypeError) as error:
            self.answer(400, {"error": str(error)})
        else:
            self.answer(202, {"id": str(job.id)})

    def do_DELETE(self) -> None:
        try:
            delete_requirement.sync.enqueue(name=self.name)
        except InvalidInput as error:
            self.answer(400, {"error": str(error)})
        else:
            self.answer(202, {"deleting": self.name})

    def do_GET(self) -> None:
        if self.path == "/check":
            stats = app.sync.stats()
            outstanding = stats.pending + stats.running
            self.answer(200, {"disagreements": disagreements(), "outstanding": outstanding})
        elif (found := read(self.name)) is not None:
            self.answer(200, found)
        else:
            self.answer(404, {"error": "no such requirement"})

    @property
    def name(self) -> str:
        name = self.path.removeprefix("/requirements/")
        return name if name.isalnum() else ""

    def answer(self, status: int, body: dict[str, Any]) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=8000)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with ThreadingHTTPServer(("127.0.0.1", parser.parse_args().port), Door) as server:
        server.serve_forever()


if __name__ == "__main__":
    main()
