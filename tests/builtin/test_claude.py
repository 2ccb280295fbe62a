"""claude_extraction: one answer for a prompt, whole and checked, or an error that says why not."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tidewheel
from tests.builtin.network_task_apps import AT_ONCE, hidden, run
from tests.builtin.web_server import Web, saying
from tests.patience import PATIENCE
from tests.servers.shared import empty_url
from tests.worker.worker_processes import ROOT, Site
from tidewheel import ConfigurationError, InvalidPayload, Job, State, Tidewheel
from tidewheel.builtin import claude_clients
from tidewheel.builtin.partial_files import PartialFile

PROMPT = "Extract the requirement: “résumé”\nand nothing else\n"
PAYLOAD = {"prompt": PROMPT, "target_path": "answers/r1.json"}


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program is a module of the tests, wherever they are started."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])))


def command(log: Path, *how: str) -> list[str]:
    return [sys.executable, "-m", "tests.builtin.fake_claude", str(log), *how]


def asked(log: Path) -> int:
    if not log.exists():
        return 0
    return sum("prompt" in json.loads(line) for line in log.read_text().splitlines())


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """Where answers go; nothing but them may be there in the end."""
    root = tmp_path / "root"
    root.mkdir()
    yield root
    assert hidden(root) == []


def extracting_app(root: Path, url: str = "memory://", **given: Any) -> Tidewheel:
    app = Tidewheel(url, poll_interval=0.05, lease=2)
    options = {"claude_extraction": {"retry": AT_ONCE}}
    app.include(tidewheel.builtin, roots=[root], options=options, **given)  # type: ignore[arg-type]
    return app


async def extract(root: Path, payload: dict[str, Any] = PAYLOAD, **given: Any) -> Job[Any]:
    return await run(extracting_app(root, **given), "claude_extraction", payload)


@pytest.mark.parametrize("store", ["memory", "sqlite", "postgres"])
async def test_the_answer_to_a_prompt_becomes_a_file(store: str, tmp_path: Path, root: Path) -> None:
    """The prompt reaches the program as it was enqueued; names of the source's fields are understood."""
    url = {"memory": "memory://", "sqlite": f"sqlite:///{tmp_path / 'jobs.db'}"}.get(store) or empty_url()
    digest = hashlib.sha256(PROMPT.encode()).hexdigest()
    app = extracting_app(root, url, claude_command=command(tmp_path / "log", "answer"))
    payload = {
        "prompt": PROMPT,
        "targetPath": "answers/r1.json",
        "requirementId": "R-1",
        "promptHash": digest.upper(),
    }
    async with app:
        job = await app.enqueue("claude_extraction", payload)
        await app.run_until_idle()
        result = await job.result(timeout=PATIENCE)
    target = root / "answers" / "r1.json"
    assert json.loads(target.read_text())["answer"] == PROMPT
    assert (result.path, result.bytes) == (str(target), target.stat().st_size)
    assert (result.prompt_hash, result.requirement_id) == (digest, "R-1")


@pytest.mark.parametrize("store", ["memory", "sqlite", "postgres"])
async def test_the_same_prompt_for_the_same_file_is_one_job(store: str, tmp_path: Path, root: Path) -> None:
    """Whoever asks, and for whatever requirement; another prompt or another file is another job."""
    url = {"memory": "memory://", "sqlite": f"sqlite:///{tmp_path / 'jobs.db'}"}.get(store) or empty_url()
    log = tmp_path / "log"
    async with extracting_app(root, url, claude_command=command(log, "answer")) as app:
        first = await app.enqueue("claude_extraction", {**PAYLOAD, "requirement_id": "R-1"})
        again = await app.enqueue(
            "claude_extraction",
            {"requirementId": "R-2", "targetPath": "answers/r1.json", "prompt": PROMPT},
        )
        assert (again.id, again.duplicate) == (first.id, True)
        await app.run_until_idle()
        assert (await app.enqueue("claude_extraction", PAYLOAD)).duplicate
        for other in ({"prompt": "Another"}, {"target_path": "answers/r2.json"}):
            assert not (await app.enqueue("claude_extraction", {**PAYLOAD, **other})).duplicate
        await app.run_until_idle()
    assert asked(log) == 3


@pytest.mark.parametrize("store", ["memory", "sqlite", "postgres"])
async def test_a_prompt_hash_is_the_key_of_its_job(store: str, tmp_path: Path, root: Path) -> None:
    """One job for it, whatever file it is for: the second is told so, with the file that is written."""
    url = {"memory": "memory://", "sqlite": f"sqlite:///{tmp_path / 'jobs.db'}"}.get(store) or empty_url()
    log, digest = tmp_path / "log", hashlib.sha256(PROMPT.encode()).hexdigest()
    async with extracting_app(root, url, claude_command=command(log, "answer")) as app:
        first = await app.enqueue("claude_extraction", {**PAYLOAD, "prompt_hash": digest})
        other = {"prompt": PROMPT, "targetPath": "answers/r2.json", "promptHash": digest.upper()}
        (again,) = await app.enqueue_many("claude_extraction", [other])
        assert (first.duplicate, first.key) == (False, digest)
        assert (again.id, again.duplicate) == (first.id, True)
        assert again.payload["target_path"] == "answers/r1.json"
        # Who gives another key, or no hash, means another job.
        assert not (await app.enqueue("claude_extraction", other, key="mine")).duplicate
        del other["promptHash"]
        assert not (await app.enqueue("claude_extraction", {**other, "targetPath": "3.json"})).duplicate
        await app.run_until_idle()
    assert asked(log) == 3


async def test_a_hash_of_another_prompt_takes_no_key(tmp_path: Path, root: Path) -> None:
    """It is refused at enqueue, or the job with the right prompt would be a duplicate of one that fails."""
    digest = hashlib.sha256(b"another").hexdigest()
    async with extracting_app(root, claude_command=command(tmp_path / "log", "answer")) as app:
        with pytest.raises(InvalidPayload, match="leave it out"):
            await app.enqueue("claude_extraction", {**PAYLOAD, "prompt_hash": digest})
        job = await app.enqueue("claude_extraction", {**PAYLOAD, "prompt": "another", "prompt_hash": digest})
        assert not job.duplicate


async def test_a_prompt_that_is_not_the_hashed_one_is_not_asked(tmp_path: Path, root: Path) -> None:
    """A prompt that changed on its way, or a hash of something else, fails the job at once."""
    payload = {**PAYLOAD, "prompt_hash": hashlib.sha256(b"another").hexdigest()}
    app = extracting_app(root, claude_command=command(tmp_path / "log", "answer"))
    job = await run(app, "claude_extraction", payload, key="mine")
    assert (job.state, job.attempt) == (State.FAILED, 1)
    assert job.error is not None
    assert job.error.code == "invalid_input"
    assert asked(tmp_path / "log") == 0


async def test_a_program_that_fails_in_the_middle_leaves_no_half(tmp_path: Path, root: Path) -> None:
    """Half an answer and an exit code are an error, with the program's last words, and tried again."""
    (root / "answers").mkdir()
    (root / "answers" / "r1.json").write_text("old")
    job = await extract(root, claude_command=command(tmp_path / "log", "half"))
    assert (job.state, job.attempt) == (State.COMPLETED, 2)
    first = job.attempts[0].error
    assert first is not None
    assert first.code == "claude_error"
    assert "the model fell asleep" in first.message
    assert json.loads((root / "answers" / "r1.json").read_text())["number"] == 2


@pytest.mark.parametrize(
    ("bad", "target", "check"),
    [("{half", "a.json", None), ("  \n", "a.txt", None), ("no", "a.txt", "yes")],
)
async def test_an_answer_nobody_could_use_is_asked_for_again(
    bad: str, target: str, check: str | None, tmp_path: Path, root: Path
) -> None:
    """JSON for a file of JSON, something for any file, and whatever claude_check wants."""

    def examine(text: str) -> None:
        if check is not None and check not in text:
            raise ValueError(f"there is no {check} in it")

    job = await extract(
        root,
        {"prompt": "?", "target_path": target},
        claude_command=command(tmp_path / "log", "words", bad, '{"yes": 1}'),
        claude_check=examine,
    )
    assert (job.state, job.attempt) == (State.COMPLETED, 2)
    assert job.attempts[0].error is not None
    assert job.attempts[0].error.code == "invalid_answer"
    assert (root / target).read_text() == '{"yes": 1}'


async def test_an_answer_that_is_too_long_is_cut_off_and_refused(tmp_path: Path, root: Path) -> None:
    """A program that writes without end is ended."""
    job = await extract(root, claude_command=["yes"], max_answer_bytes=1000)
    assert (job.state, job.attempt) == (State.FAILED, 1)
    assert job.error is not None
    assert job.error.code == "too_large"
    assert "1,000 bytes (max_answer_bytes)" in job.error.message


async def test_a_program_that_is_not_there_is_named(root: Path) -> None:
    """It may be installed before the next attempt."""
    job = await extract(root, claude_command=["no-such-program-anywhere", "-p"])
    assert job.error is not None
    assert (job.error.code, job.error.retryable) == ("claude_error", True)
    assert "no-such-program-anywhere" in job.error.message


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def until(condition: Any, patience: float = PATIENCE) -> None:
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def standing(log: Path) -> bool:
    return log.exists() and "standing" in log.read_text()


async def test_a_cancelled_job_ends_its_program(tmp_path: Path, root: Path) -> None:
    """Nothing goes on beside a job that is over."""
    log = tmp_path / "log"
    async with extracting_app(root, claude_command=command(log, "stand")) as app:
        job = await app.enqueue("claude_extraction", PAYLOAD)
        worker = asyncio.create_task(app.run_until_idle())
        await asyncio.to_thread(until, lambda: standing(log))
        await app.cancel(job.id)
        await asyncio.wait_for(worker, PATIENCE)
        assert (await app.get(job.id)).state is State.CANCELLED
    pid = json.loads(log.read_text().splitlines()[0])["pid"]
    await asyncio.to_thread(until, lambda: not alive(pid))
    assert not (root / "answers" / "r1.json").exists()


@pytest.mark.parametrize(
    ("script", "timeout", "state"),
    [
        # holds the pipe that the answer comes through
        ("sleep 60 & echo $! > {pid}; echo answer", None, State.COMPLETED),
        # holds nothing
        ("sleep 60 > {pid}.log 2>&1 < /dev/null & echo $! > {pid}; echo answer", None, State.COMPLETED),
        # and is deaf, when its parent is asked to stop
        ("(trap '' TERM; sleep 60; :) > {pid}.log 2>&1 & echo $! > {pid}; sleep 60", 0.5, State.FAILED),
    ],
    ids=["with the pipe", "without", "deaf"],
)
async def test_what_a_program_leaves_behind_is_ended_with_it(
    script: str,
    timeout: float | None,
    state: State,
    tmp_path: Path,
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing of it goes on beside the job, or after; and it does not keep an answer from ending."""
    monkeypatch.setattr(claude_clients, "LEFTOVER_GRACE_SECONDS", 0.1)
    pid = tmp_path / "pid"
    app = extracting_app(root, claude_command=["sh", "-c", script.format(pid=pid)])
    payload = {"prompt": "?", "target_path": "a.txt"}
    job = await run(app, "claude_extraction", payload, max_attempts=1, timeout=timeout)
    assert job.state is state, job.error
    assert (root / "a.txt").exists() is (state is State.COMPLETED)
    await asyncio.to_thread(until, lambda: not alive(int(pid.read_text())))


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
async def test_a_worker_killed_while_it_asks_leaves_one_answer(
    store: str, tmp_path: Path, root: Path
) -> None:
    """Half an answer dies with the worker; the next one asks again, and one whole file is there."""
    url = empty_url() if store == "postgres" else None
    site = Site(tmp_path, store_url=url, program="tests.builtin.network_task_victim")
    log = tmp_path / "log"
    environment = {"ROOT": str(root), "CLAUDE_COMMAND": json.dumps(command(log, "stand"))}
    async with extracting_app(root, site.url, claude_command=["false"]) as app:
        job = await app.enqueue("claude_extraction", PAYLOAD)
        process = await asyncio.to_thread(site.start, **environment)
        orphan = 0
        try:
            await asyncio.to_thread(until, lambda: standing(log))
            orphan = json.loads(log.read_text().splitlines()[0])["pid"]
            process.kill()
            process.communicate()
            assert not (root / "answers" / "r1.json").exists()
            process = await asyncio.to_thread(site.start, **environment)
            result = await job.result(timeout=PATIENCE)
        finally:
            process.kill()
            process.communicate()
            if orphan:
                os.kill(orphan, 9)  # it stands still for the test's sake
    assert json.loads((root / "answers" / "r1.json").read_text())["answer"] == PROMPT
    assert result.bytes == (root / "answers" / "r1.json").stat().st_size


@pytest.mark.parametrize("when", ["before", "after"])
async def test_an_answer_that_was_kept_is_not_asked_for_again(
    when: str, tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that dies around the rename leaves the answer to the next one."""
    publish = PartialFile.publish

    def dies(draft: PartialFile) -> None:
        monkeypatch.setattr(PartialFile, "publish", publish)
        if when == "after":
            publish(draft)
        raise OSError("the power is gone")

    monkeypatch.setattr(PartialFile, "publish", dies)
    job = await extract(root, claude_command=command(tmp_path / "log", "answer"))
    assert (job.state, job.attempt) == (State.COMPLETED, 2), job.error
    assert asked(tmp_path / "log") == 1
    assert json.loads((root / "answers" / "r1.json").read_text())["number"] == 1


# -- the API ----------------------------------------------------------------------------------------------


def reply(text: str, reason: str = "end_turn") -> bytes:
    return json.dumps({"content": [{"type": "text", "text": text}], "stop_reason": reason}).encode()


async def ask_api(root: Path, web: Web, **given: Any) -> Job[Any]:
    return await extract(
        root, claude_model="claude-x", claude_api_url=web.url, claude_api_key="sk-secret", **given
    )


async def test_the_api_is_asked_where_a_model_is_configured(root: Path) -> None:
    """The prompt, the model and the key, and the text of the answer."""
    with Web(answer=saying(200, reply('{"found": "é"}'))).serving() as web:
        job = await ask_api(root, web, claude_max_tokens=77)
    assert job.state is State.COMPLETED, job.error
    assert (root / "answers" / "r1.json").read_text() == '{"found": "é"}'
    (request,) = web.requests
    assert (request["X-Api-Key"], request["Anthropic-Version"]) == ("sk-secret", "2023-06-01")
    assert json.loads(request["body"]) == {
        "model": "claude-x",
        "max_tokens": 77,
        "messages": [{"role": "user", "content": PROMPT}],
    }


@pytest.mark.parametrize("trouble", ["overloaded", "cut off", "no json"])
async def test_an_api_in_trouble_is_asked_again(trouble: str, root: Path) -> None:
    """One answer in the end, whole."""
    with Web().serving() as web:

        def answer(handler: Any) -> bool:
            if len(web.requests) > 1:
                return saying(200, reply("{}"))(handler)
            if trouble == "overloaded":
                return saying(529, b'{"error": {"message": "Overloaded"}}')(handler)
            if trouble == "no json":
                return saying(200, b"<html>")(handler)
            handler.send_response(200)
            handler.send_header("Content-Length", "1000")
            handler.end_headers()
            handler.wfile.write(b'{"content": [')
            handler.close_connection = True
            return True

        web.answer = answer
        job = await ask_api(root, web)
    assert (job.state, job.attempt) == (State.COMPLETED, 2), job.error
    assert (root / "answers" / "r1.json").read_text() == "{}"


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (401, b'{"error": {"message": "invalid x-api-key"}}', "invalid x-api-key"),
        (400, b'{"error": {"message": "prompt is too long"}}', "prompt is too long"),
        (404, b"<html>there is no API here</html>", "no JSON"),
        (200, reply("{", "max_tokens"), "claude_max_tokens"),
        (200, reply("", "refusal"), "refusal"),
    ],
)
async def test_an_answer_that_will_not_get_better_fails_the_job(
    status: int, body: bytes, words: str, root: Path
) -> None:
    """With the reason, and without the key."""
    with Web(answer=saying(status, body)).serving() as web:
        job = await ask_api(root, web)
    assert (job.state, job.attempt) == (State.FAILED, 1)
    assert job.error is not None
    assert job.error.code == "claude_error"
    assert words in job.error.message
    assert "sk-secret" not in str(job.error)


@pytest.mark.parametrize("status", [429, 503, 529])
async def test_an_api_that_asks_for_patience_gets_it(status: int, root: Path) -> None:
    """Retry-After says when the next attempt is due."""
    with Web(answer=saying(status, b"{}", Retry_After="120")).serving() as web:
        job = await ask_api(root, web)
    assert (job.state, job.attempt) == (State.PENDING, 1)
    assert 100 < (job.run_at - job.created_at).total_seconds() < 130


async def test_a_worker_without_a_key_says_so(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is missing and where to put it."""
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    job = await extract(root, claude_model="claude-x", claude_api_url="http://127.0.0.1:1/")
    assert job.error is not None
    assert (job.error.code, "ANTHROPIC_API_KEY" in job.error.message) == ("no_credentials", True)


@pytest.mark.parametrize(
    "wrong",
    [{"prompt": ""}, {"target_path": "../x"}, {"prompt_hash": "md5"}, {"targetPath": "twice"}, {"other": 1}],
)
async def test_a_bad_payload_is_refused_at_enqueue(wrong: dict[str, Any], root: Path) -> None:
    """Nothing is written."""
    async with extracting_app(root, claude_command=["true"]) as app:
        with pytest.raises(InvalidPayload):
            await app.enqueue("claude_extraction", {**PAYLOAD, **wrong})
        assert (await app.stats()).pending == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"claude_command": "claude -p"},
        {"claude_command": []},
        {"claude_command": ["claude"], "claude_model": "x"},
        {"claude_command": ["claude"], "max_answer_bytes": 0},
        {"claude_command": ["claude"], "claude_check": "json"},
        {"claude_model": ""},
        {"claude_model": "x", "claude_api_url": "api"},
        {"claude_model": "x", "claude_max_tokens": True},
        {"claude_model": "x", "claude_api_key": 1},
    ],
)
def test_configuration_that_cannot_work_is_refused(wrong: dict[str, Any], root: Path) -> None:
    """When the tasks are included."""
    with pytest.raises(ConfigurationError, match=list(wrong)[-1]):
        extracting_app(root, **wrong)
