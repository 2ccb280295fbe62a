"""``claude_extraction``: a prompt is answered by Claude, and the answer becomes a file.

The prompt is part of the job, as it was when the job was enqueued. Two jobs with the same ``prompt_hash`` are
one job; where none is given, two with the same prompt for the same file are. An answer is checked and kept in
a draft before it counts, so that nobody asks a second time when a worker dies after that.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Final, TypedDict

import msgspec
from msgspec import Meta

from tidewheel.builtin.claude_clients import ClaudeApi, ClaudeClient, ClaudeCommand
from tidewheel.builtin.http_client import HttpAddress
from tidewheel.builtin.partial_files import PartialFile, is_published, open_partial_file, run_uncancelled
from tidewheel.builtin.roots import FilePath, Roots, os_errors_as_task_errors
from tidewheel.builtin.task_group import BuiltinTask, TaskGroup
from tidewheel.core.names import shorten
from tidewheel.errors import ConfigurationError, Fail, InvalidPayload, TaskError
from tidewheel.tasks.annotations import Alias
from tidewheel.tasks.context import Context
from tidewheel.tasks.options import ByFields, by_fields

MAX_ANSWER_BYTES: Final = 2**20
MAX_TOKENS: Final = 8_192
API_URL: Final = "https://api.anthropic.com/v1/messages"
TIMEOUT_SECONDS: Final = 900.0

Prompt = Annotated[str, Meta(min_length=1)]
Sha256 = Annotated[str, Meta(pattern="^[0-9a-fA-F]{64}$")]


class ClaudeOptions(TypedDict, total=False):
    """What may be said about Claude."""

    claude_command: Sequence[str]
    claude_model: str
    claude_api_key: str | Callable[[], str]
    claude_api_url: str
    claude_max_tokens: int
    claude_check: Callable[[str], object]
    max_answer_bytes: int


@dataclass(frozen=True, slots=True)
class Extracted:
    """What came of it."""

    path: str
    bytes: int
    prompt_hash: str
    requirement_id: str | None


@dataclass(frozen=True, slots=True)
class ExtractionCheckpoint:
    """How far a job is: its checkpoint. With a hash the answer is there, and nobody is asked again."""

    draft: str
    size: int = 0
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class ByPromptHash(ByFields):
    """The key of a job: its ``prompt_hash`` as given, else a hash of prompt and target.

    Whoever hands in the hash asks for one job with that prompt, whatever it is for. Without it nobody asked
    for that, and a second file with the same prompt must not be left out.
    """

    names: tuple[str, ...] = ("prompt", "target_path", "prompt_hash")

    def key_of(self, body: bytes) -> str:
        fields = msgspec.json.decode(body)
        given = fields.get("prompt_hash")
        if given is None:
            return by_fields("prompt", "target_path").key_of(body)
        digest = _digest_of(fields["prompt"])
        if given.lower() != digest:
            # Here and now: it would hold the key, and the job that is really meant would be its duplicate.
            raise InvalidPayload(_other_hash(given, digest))
        return digest


def _digest_of(prompt: str) -> str:
    return hashlib.sha256(prompt.encode()).hexdigest()


def _other_hash(given: str, digest: str) -> str:
    return f"prompt_hash is {given}, but SHA-256 of the prompt is {digest}; leave it out, or give that"


class Extractions:
    """The task, and what it was configured with."""

    def __init__(
        self,
        roots: Roots,
        client: ClaudeClient,
        check: Callable[[str], object] | None = None,
        file_mode: int | None = None,
    ) -> None:
        self._roots = roots
        self._asking = client
        self._check = check
        self._mode = file_mode

    async def claude_extraction(
        self,
        ctx: Context,
        prompt: Prompt,
        target_path: Annotated[FilePath, Alias("targetPath")],
        requirement_id: Annotated[str | None, Alias("requirementId")] = None,
        prompt_hash: Annotated[Sha256 | None, Alias("promptHash")] = None,
    ) -> Extracted:
        """Have ``prompt`` answered by Claude, and write the answer to the file ``target_path``.

        ``prompt_hash`` is the SHA-256 of the prompt, compared where it is given; ``requirement_id`` comes
        back with the result. An answer for a file named ``….json`` has to be JSON.
        """
        digest = _digest_of(prompt)
        if prompt_hash is not None and prompt_hash.lower() != digest:
            raise Fail(_other_hash(prompt_hash, digest), code="invalid_input")
        course = ExtractionCheckpoint(**ctx.checkpoint.value) if ctx.checkpoint else None
        with os_errors_as_task_errors(target_path):
            earlier = course.draft if course else None
            async with open_partial_file(self._roots, ctx, target_path, earlier, self._mode) as draft:
                if course is None or not await self._is_done(draft, course, target_path):
                    try:
                        course = await self._ask(ctx, prompt, target_path, draft)
                    except BaseException:
                        await run_uncancelled(draft.discard)  # there is nothing in it that somebody could use
                        raise
                    # Refused when this run has lost the job, and then nothing is put in place.
                    await ctx.checkpoint(asdict(course))
                    await run_uncancelled(draft.publish)
                return Extracted(draft.path, course.size, digest, requirement_id)

    async def _ask(
        self, ctx: Context, prompt: str, target_path: str, draft: PartialFile
    ) -> ExtractionCheckpoint:
        await run_uncancelled(draft.truncate, 0)
        await ctx.checkpoint(asdict(ExtractionCheckpoint(draft.name)))
        await ctx.progress(10, "asking")
        answer = await self._asking.ask(prompt)
        await ctx.progress(90, "checking the answer")
        await self._check_answer(answer, target_path)
        await run_uncancelled(draft.write, answer)
        await run_uncancelled(draft.flush)
        return ExtractionCheckpoint(draft.name, len(answer), hashlib.sha256(answer).hexdigest())

    async def _is_done(self, draft: PartialFile, course: ExtractionCheckpoint, target_path: str) -> bool:
        """Whether an earlier run had the answer, and died before it could put it in place or say so."""
        if course.sha256 is None:
            return False
        if draft.size == course.size and (await run_uncancelled(draft.digest)).hexdigest() == course.sha256:
            await run_uncancelled(draft.publish)
            return True
        if await run_uncancelled(is_published, self._roots, target_path, course.size, course.sha256):
            await run_uncancelled(draft.discard)
            return True
        return False

    async def _check_answer(self, answer: bytes, target_path: str) -> None:
        """Refuse an answer that nobody could use. Another try may bring a better one."""
        try:
            text = answer.decode()
            if not text.strip():
                raise ValueError("it is empty")
            if os.path.splitext(target_path)[1].lower() == ".json":
                json.loads(text)
            if self._check is not None:
                await run_uncancelled(self._check, text)
        except (ValueError, RecursionError) as error:
            raise TaskError(f"the answer cannot be used: {error}", code="invalid_answer") from None


def build(given: Mapping[str, Any], roots: Roots) -> Iterable[BuiltinTask]:
    """The task, where a command or a model of the API is configured."""
    command, model = given.get("claude_command"), given.get("claude_model")
    if command is None and model is None:
        return
    if not roots:
        raise ConfigurationError("Claude is configured, but there is no root for its answers; give roots=")
    if command is not None and model is not None:
        raise ConfigurationError("claude_command and claude_model are both given; one of them is asked")
    max_bytes = _number(given, "max_answer_bytes", MAX_ANSWER_BYTES)
    if command is not None:
        words = () if isinstance(command, str) else tuple(command)
        if not words or not all(isinstance(word, str) and word for word in words):
            raise ConfigurationError(
                f"claude_command is {shorten(command)}; give a list such as ['claude', '-p']"
            )
        asking: ClaudeClient = ClaudeCommand(words, max_bytes)
    else:
        asking = _api(given, max_bytes)
    check = given.get("claude_check")
    if check is not None and not callable(check):
        raise ConfigurationError(f"claude_check is {shorten(check)}; give a function of the answer's text")
    yield BuiltinTask(
        "claude_extraction",
        Extractions(roots, asking, check, given.get("file_mode")).claude_extraction,
        {"timeout": TIMEOUT_SECONDS, "key": ByPromptHash()},
    )


def _api(given: Mapping[str, Any], max_bytes: int) -> ClaudeApi:
    model, key = given["claude_model"], given.get("claude_api_key")
    if not isinstance(model, str) or not model:
        raise ConfigurationError(f"claude_model is {shorten(model)}; give the name of a model")
    if key is not None and not callable(key) and not (isinstance(key, str) and key):
        raise ConfigurationError("claude_api_key is neither a text nor a function that answers one")
    url = given.get("claude_api_url", API_URL)
    try:
        where = HttpAddress.parse(url)
    except TaskError as error:
        raise ConfigurationError(f"claude_api_url: {error}") from None
    tokens = _number(given, "claude_max_tokens", MAX_TOKENS)
    # It answers all at once, so it may be silent for as long as the job may take.
    return ClaudeApi(where, model, _key_from(key), tokens, max_bytes, TIMEOUT_SECONDS)


def _key_from(given: str | Callable[[], str] | None) -> Callable[[], str]:
    def key() -> str:
        found = given() if callable(given) else given or os.environ.get("ANTHROPIC_API_KEY", "")
        if not found:
            raise TaskError(
                "the worker has no key for the API; set ANTHROPIC_API_KEY, or include tidewheel.builtin with "
                "claude_api_key=",
                code="no_credentials",
            )
        return found

    return key


def _number(given: Mapping[str, Any], name: str, default: int) -> int:
    value = given.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigurationError(f"{name} is {shorten(value)}; give a number, 1 or more")
    return value


TASKS: Final = TaskGroup(("claude_extraction",), build, "roots, and claude_command or claude_model")
