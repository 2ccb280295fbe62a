"""Every setting, once: its default, its range, its help. The command line and the docs list this table.

A value comes from the first of: keyword of ``Tidewheel(...)``, environment variable ``TIDEWHEEL_<NAME>``,
``[tool.tidewheel]`` in the nearest ``pyproject.toml`` (from the working directory upwards), the default.
"""

from __future__ import annotations

import functools
import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, TypedDict

from tidewheel.core.clock import DAY, MAX_SECONDS
from tidewheel.core.model import ROOT_TENANT
from tidewheel.core.names import check_tenant, shorten, suggest
from tidewheel.core.urls import check_secret_target
from tidewheel.errors import ConfigurationError, InvalidInput

MAX_COUNT: Final = 2**31 - 1

ENVIRONMENT_PREFIX: Final = "TIDEWHEEL_"


class SettingKind(StrEnum):
    """What a setting's value is, in the words of the docs."""

    TEXT = "text"
    SECONDS = "seconds"
    NUMBER = "number"
    SWITCH = "yes/no"
    LIST = "list"


@dataclass(frozen=True, slots=True)
class Setting:
    """One line of the table of settings."""

    name: str
    kind: SettingKind
    default: Any
    help: str
    minimum: float | None = None
    maximum: float | None = None
    none_means: str | None = None  # None = the setting always has a value
    empty_means: str | None = None  # of a text; None = it may not be empty

    @property
    def environment(self) -> str:
        """The environment variable that sets it."""
        return ENVIRONMENT_PREFIX + self.name.upper()

    @property
    def allowed(self) -> str:
        """The accepted values, for people."""
        match self.kind:
            case SettingKind.TEXT:
                words = f"text, or nothing ({self.empty_means})" if self.empty_means else "text"
            case SettingKind.SWITCH:
                words = "true or false"
            case SettingKind.LIST:
                words = f"up to {self.maximum:,.15g} texts, with commas between them in the environment"
            case _:
                unit = "seconds" if self.kind is SettingKind.SECONDS else "a whole number"
                words = f"{unit} from {self.minimum:,.15g} to {self.maximum:,.15g}"
        return f"{words}, or none ({self.none_means})" if self.none_means else words

    def check(self, value: Any, source: str) -> Any:
        """``value`` in its final type, or an error that names the setting, the value and what is allowed."""
        if value is None and self.none_means:
            return None
        match self.kind:
            case SettingKind.TEXT:
                good = isinstance(value, str) and (value != "" or self.empty_means is not None)
            case SettingKind.SWITCH:
                good = isinstance(value, bool)
            case SettingKind.LIST:
                good = (
                    isinstance(value, list | tuple)
                    and all(isinstance(item, str) and item != "" for item in value)
                    and self._in_range(len(value))
                )
                value = tuple(value) if good else value
            case SettingKind.SECONDS:
                if isinstance(value, timedelta):
                    value = value.total_seconds()
                good = (
                    isinstance(value, int | float) and not isinstance(value, bool) and self._in_range(value)
                )
                value = float(value) if good else value
            case SettingKind.NUMBER:
                good = type(value) is int and self._in_range(value)  # True is no number here
        if not good:
            raise ConfigurationError(f"{self.name} is {shorten(value)} ({source}); allowed: {self.allowed}")
        return value

    def parse(self, text: str, source: str) -> Any:
        """The same for text from the environment."""
        words = text.strip()
        if self.none_means and words.lower() == "none":
            return None
        value: Any = words
        try:
            match self.kind:
                case SettingKind.SWITCH:
                    value = _SWITCHES.get(words.lower(), words)
                case SettingKind.NUMBER:
                    value = int(words)
                case SettingKind.SECONDS:
                    value = float(words)
                case SettingKind.LIST:
                    value = [item.strip() for item in words.split(",") if item.strip()]
        except ValueError:
            value = words  # left as text, which check refuses with the full story
        return self.check(value, source)

    def _in_range(self, value: float) -> bool:
        # NaN compares false and is refused here.
        return self.minimum is not None and self.maximum is not None and self.minimum <= value <= self.maximum


_SWITCHES: Final = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}


def _setting(
    kind: SettingKind,
    default: Any,
    help_: str,
    minimum: float | None = None,
    maximum: float | None = None,
    *,
    none_means: str | None = None,
    empty_means: str | None = None,
    secret: bool = False,
) -> Any:
    table = {
        "kind": kind,
        "help": help_,
        "minimum": minimum,
        "maximum": maximum,
        "none_means": none_means,
        "empty_means": empty_means,
    }
    return field(default=default, metadata=table, repr=not secret)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How an app behaves. Fixed once the app is made; build it with :func:`load_settings`."""

    url: str = _setting(
        SettingKind.TEXT,
        "sqlite:///tidewheel.db",
        "Where jobs live: sqlite:///path, postgresql://host/database or memory://; or http://host:8080, a "
        "server that has them.",
    )
    token: str | None = _setting(
        SettingKind.TEXT,
        None,
        "The API key, or token, to show to the server that an http:// or https:// URL names.",
        none_means="none is shown",
        secret=True,
    )
    lease: float = _setting(
        SettingKind.SECONDS, 60.0, "How long a claimed job stays a worker's without an extension.", 2, DAY
    )
    concurrency: int = _setting(SettingKind.NUMBER, 10, "Handlers one worker runs at a time.", 1, 10_000)
    max_payload_bytes: int = _setting(SettingKind.NUMBER, 65_536, "Largest payload, encoded.", 2, MAX_COUNT)
    max_result_bytes: int = _setting(
        SettingKind.NUMBER, 65_536, "Largest result, checkpoint and output of a step, encoded.", 4, MAX_COUNT
    )
    max_key_length: int = _setting(SettingKind.NUMBER, 255, "Longest key, in characters.", 64, 1000)
    max_topics: int = _setting(
        SettingKind.NUMBER, 0, "Most topics in the store; 0 is unlimited.", 0, MAX_COUNT
    )
    max_jobs_per_topic: int = _setting(
        SettingKind.NUMBER, 0, "Most pending and running jobs of one topic; 0 is unlimited.", 0, MAX_COUNT
    )
    max_attempts: int | None = _setting(
        SettingKind.NUMBER, 3, "Attempts a job gets before it fails.", 1, MAX_COUNT, none_means="unlimited"
    )
    timeout: float | None = _setting(
        SettingKind.SECONDS,
        300.0,
        "How long one attempt may run.",
        0.001,
        MAX_SECONDS,
        none_means="no timeout",
    )
    retention: float | None = _setting(
        SettingKind.SECONDS,
        14 * DAY,
        "How long finished jobs are kept.",
        0,
        MAX_SECONDS,
        none_means="for ever",
    )
    retention_failed: float | None = _setting(
        SettingKind.SECONDS,
        None,
        "How long failed jobs are kept.",
        0,
        MAX_SECONDS,
        none_means="the same as retention",
    )
    shutdown_grace: float = _setting(
        SettingKind.SECONDS, 30.0, "How long running handlers may finish after a signal to stop.", 0, DAY
    )
    poll_interval: float = _setting(
        SettingKind.SECONDS, 1.0, "How often the store is asked when no wake-up arrives.", 0.01, 3600
    )
    health_listen: str = _setting(
        SettingKind.TEXT,
        "",
        "Where `tidewheel worker` answers how it is doing: HOST:PORT, or PORT on the loopback interface.",
        empty_means="nowhere",
    )
    log_jobs: bool = _setting(
        SettingKind.SWITCH, False, "Log a line for each step in a job's life, as tidewheel.lifecycle."
    )
    metrics: bool | None = _setting(
        SettingKind.SWITCH,
        None,
        "Count what this process does, for Prometheus and OpenTelemetry.",
        none_means="where somebody can ask: with a health port, and in a server",
    )
    prefetch: int | None = _setting(
        SettingKind.NUMBER,
        None,
        "Most jobs a worker holds that have not started.",
        0,
        1000,
        none_means="chosen by the worker",
    )
    max_waiters: int | None = _setting(
        SettingKind.NUMBER,
        10_000,
        "Most callers of a process that wait in reserve at a time.",
        1,
        MAX_COUNT,
        none_means="unlimited",
    )
    default_ttr: float = _setting(
        SettingKind.SECONDS,
        60.0,
        "How long a reservation lasts of a job that was put without a ttr.",
        1,
        MAX_SECONDS,
    )
    max_touches: int | None = _setting(
        SettingKind.NUMBER,
        10,
        "How often one reservation may be touched.",
        0,
        MAX_COUNT,
        none_means="unlimited",
    )
    max_touch_duration: float | None = _setting(
        SettingKind.SECONDS,
        600.0,
        "How much longer all touches of a reservation may make it.",
        0,
        MAX_SECONDS,
        none_means="unlimited",
    )
    min_touch_interval: float | None = _setting(
        SettingKind.SECONDS,
        5.0,
        "How long to wait from one touch of a reservation to the next.",
        0,
        MAX_SECONDS,
        none_means="not at all",
    )
    lane_capacity: int = _setting(
        SettingKind.NUMBER, 256, "Most jobs of non-durable tasks that wait in a process.", 1, 1_000_000
    )
    lane_concurrency: int = _setting(
        SettingKind.NUMBER, 4, "Handlers of non-durable tasks a process runs at a time.", 1, 10_000
    )
    transaction_seconds: float | None = _setting(
        SettingKind.SECONDS,
        None,
        "How long a handler's own transaction may be open; never longer than a third of the lease.",
        0.01,
        DAY,
        none_means="a third of the lease",
    )
    schedules: bool = _setting(
        SettingKind.SWITCH, True, "Let this worker make the jobs of schedules that are due."
    )
    strict_tasks: bool = _setting(
        SettingKind.SWITCH, False, "Refuse to enqueue tasks this app does not know."
    )
    migrate: bool = _setting(SettingKind.SWITCH, True, "Bring the schema up to date when the app opens.")
    check_on_start: bool = _setting(
        SettingKind.SWITCH,
        True,
        "Look at the store and at the files of completed jobs a moment after a worker has started, and log "
        "what is wrong.",
    )
    tenant: str = _setting(SettingKind.TEXT, ROOT_TENANT, "The tenant of jobs that are given none.")
    tenant_uuids: bool = _setting(
        SettingKind.SWITCH, False, "Refuse tenants other than root that are no UUIDs."
    )
    http_api: bool = _setting(
        SettingKind.SWITCH,
        True,
        "Serve the HTTP API, and with it the web UI; health checks are served in any case.",
    )
    ui: bool = _setting(SettingKind.SWITCH, True, "Serve the web UI, where the HTTP API is served.")
    enqueue_rule: str = _setting(
        SettingKind.TEXT, "", "Who may enqueue over HTTP.", empty_means="superusers only"
    )
    manage_rule: str = _setting(
        SettingKind.TEXT, "", "Who may see and manage which jobs over HTTP.", empty_means="superusers only"
    )
    allowed_topics: tuple[str, ...] = _setting(
        SettingKind.LIST,
        (),
        "The only topics that others than superusers can enqueue to over HTTP; without any, those of the "
        "app's tasks. Jobs of no task that the app knows are taken for these alone, from superusers too.",
        0,
        1000,
    )
    allowed_tasks: tuple[str, ...] = _setting(
        SettingKind.LIST,
        (),
        "Tasks that others than superusers can enqueue over HTTP to another topic than the task's own.",
        0,
        1000,
    )
    redact: tuple[str, ...] = _setting(
        SettingKind.LIST,
        (
            "password",
            "passwd",
            "secret",
            "client_secret",
            "token",
            "access_token",
            "refresh_token",
            "api_key",
            "apikey",
            "authorization",
            "private_key",
            "card_number",
            "cvv",
        ),
        "What is not shown of bodies over HTTP: a name hides that member at any depth, a path like "
        "user.address or orders.*.iban what is there.",
        0,
        1000,
    )
    superuser: str | None = _setting(
        SettingKind.TEXT,
        None,
        "Name and password of a superuser, as name:password.",
        none_means="made at the first start",
        secret=True,
    )
    session_seconds: float = _setting(
        SettingKind.SECONDS, 12 * 3600.0, "How long somebody stays logged in.", 60, 30 * DAY
    )
    jwt_secret: str | None = _setting(
        SettingKind.TEXT,
        None,
        "The secret JSON Web Tokens are signed with, at least 32 bytes.",
        none_means="none are accepted",
        secret=True,
    )
    jwt_jwks_url: str | None = _setting(
        SettingKind.TEXT,
        None,
        "Where the public keys for JSON Web Tokens are found (JWKS).",
        none_means="none are accepted",
    )
    jwt_algorithms: tuple[str, ...] = _setting(
        SettingKind.LIST,
        (),
        "The algorithms accepted; none: HS256 with a secret, RS256, ES256 and EdDSA with JWKS.",
        0,
        20,
    )
    jwt_audience: str | None = _setting(
        SettingKind.TEXT, None, "The audience (aud) a JSON Web Token must be for.", none_means="any"
    )
    jwt_issuer: str | None = _setting(
        SettingKind.TEXT,
        None,
        "Who must have issued a JSON Web Token (iss).",
        none_means="anyone with the key",
    )
    jwt_tenant_claim: str | None = _setting(
        SettingKind.TEXT,
        None,
        "The claim that names the tenant; a token without it is refused.",
        none_means="all tokens are of the root tenant",
    )
    jwt_default_scopes: tuple[str, ...] = _setting(
        SettingKind.LIST,
        ("read",),
        "The scopes of a JSON Web Token that names none of Tidewheel. read shows states, progress, errors "
        "without tracebacks, statistics, and the results of finished jobs; give an empty list if results are "
        "confidential. Payloads, tracebacks, enqueueing, cancelling and deleting need other scopes.",
        0,
        10,
    )
    trusted_proxies: tuple[str, ...] = _setting(
        SettingKind.LIST,
        (),
        "Addresses or networks of the proxies in front of the server, whose word counts for where a request "
        "came from (X-Forwarded-For) and whether it was encrypted (X-Forwarded-Proto).",
        0,
        100,
    )
    max_request_bytes: int = _setting(
        SettingKind.NUMBER, 4 * 1024 * 1024, "Largest body of an HTTP request.", 1024, MAX_COUNT
    )
    request_seconds: float = _setting(
        SettingKind.SECONDS,
        30.0,
        "How long an HTTP request may take; event streams and waits for results aside.",
        1,
        3600,
    )
    max_event_streams: int = _setting(
        SettingKind.NUMBER, 10_000, "Most event streams a server keeps open.", 1, 1_000_000
    )
    max_tenant_event_streams: int = _setting(
        SettingKind.NUMBER,
        2_500,
        "Most event streams a server keeps open for the callers of one tenant; superusers are not counted.",
        1,
        1_000_000,
    )
    max_connections_per_address: int = _setting(
        SettingKind.NUMBER,
        1000,
        "Most connections to the server from one address, or from one /64 network of IPv6; those in "
        "trusted_proxies have no limit.",
        1,
        1_000_000,
    )
    max_header_bytes: int = _setting(
        SettingKind.NUMBER,
        32_768,
        "Largest headers of an HTTP request, all names and values.",
        4096,
        1024 * 1024,
    )
    max_trailer_bytes: int = _setting(
        SettingKind.NUMBER,
        8192,
        "Largest trailers behind a chunked body; they are dropped in any case.",
        0,
        1024 * 1024,
    )
    max_pipelined_requests: int = _setting(
        SettingKind.NUMBER,
        16,
        "How many HTTP requests a client may send ahead of the answers on one connection; with more, it is "
        "closed after their answers.",
        1,
        1000,
    )
    min_send_rate: int = _setting(
        SettingKind.NUMBER,
        1024,
        "Bytes a second that a client has to read of an answer that waits for it, on average over "
        "request_seconds; a slower one is cut.",
        1,
        MAX_COUNT,
    )
    audit_retention: float | None = _setting(
        SettingKind.SECONDS,
        90 * DAY,
        "How long the audit log is kept.",
        3600,
        MAX_SECONDS,
        none_means="for ever",
    )


class SettingOptions(TypedDict, total=False):
    """The settings as keywords of ``Tidewheel(...)``; a test keeps it equal to :class:`Settings`."""

    token: str | None
    lease: float | timedelta
    concurrency: int
    max_payload_bytes: int
    max_result_bytes: int
    max_key_length: int
    max_topics: int
    max_jobs_per_topic: int
    max_attempts: int | None
    timeout: float | timedelta | None
    retention: float | timedelta | None
    retention_failed: float | timedelta | None
    shutdown_grace: float | timedelta
    poll_interval: float | timedelta
    health_listen: str
    log_jobs: bool
    metrics: bool | None
    prefetch: int | None
    max_waiters: int | None
    default_ttr: float | timedelta
    max_touches: int | None
    max_touch_duration: float | timedelta | None
    min_touch_interval: float | timedelta | None
    lane_capacity: int
    lane_concurrency: int
    transaction_seconds: float | timedelta | None
    schedules: bool
    strict_tasks: bool
    migrate: bool
    check_on_start: bool
    tenant: str
    tenant_uuids: bool
    http_api: bool
    ui: bool
    enqueue_rule: str
    manage_rule: str
    allowed_topics: Sequence[str]
    allowed_tasks: Sequence[str]
    redact: Sequence[str]
    superuser: str | None
    session_seconds: float | timedelta
    jwt_secret: str | None
    jwt_jwks_url: str | None
    jwt_algorithms: Sequence[str]
    jwt_audience: str | None
    jwt_issuer: str | None
    jwt_tenant_claim: str | None
    jwt_default_scopes: Sequence[str]
    trusted_proxies: Sequence[str]
    max_request_bytes: int
    request_seconds: float | timedelta
    max_event_streams: int
    max_tenant_event_streams: int
    max_connections_per_address: int
    max_header_bytes: int
    max_trailer_bytes: int
    max_pipelined_requests: int
    min_send_rate: int
    audit_retention: float | timedelta | None


SETTINGS: Final[Mapping[str, Setting]] = {
    item.name: Setting(name=item.name, default=item.default, **item.metadata) for item in fields(Settings)
}
"""The table, by name."""


def load_settings(
    given: Mapping[str, Any],
    *,
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> Settings:
    """The settings in force: ``given`` keywords, then the environment, then pyproject.toml, then defaults."""
    environment = os.environ if environment is None else environment
    filed = _from_pyproject(directory or Path.cwd())
    chosen: dict[str, Any] = {}
    for name, setting in SETTINGS.items():
        text = environment.get(setting.environment, "")
        if text.strip():  # an empty variable is what a compose file leaves for "not set"
            chosen[name] = setting.parse(text, f"environment variable {setting.environment}")
    for name, value in given.items():
        chosen[name] = _known(name, "keyword").check(value, "keyword")
    check_secret_target(filed, chosen, environment)
    settings = Settings(**(filed | chosen))
    try:
        check_tenant(settings.tenant, uuids=settings.tenant_uuids)
    except InvalidInput as error:
        raise ConfigurationError(str(error)) from None
    return settings


def override_settings(settings: Settings, given: Mapping[str, Any]) -> Settings:
    """These settings with some values replaced for one worker; None means "as it was"."""
    changes = {
        name: _known(name, "worker option").check(value, "worker option")
        for name, value in given.items()
        if value is not None
    }
    return replace(settings, **changes)


def _from_pyproject(directory: Path) -> dict[str, Any]:
    for place in (directory, *directory.parents):
        path = place / "pyproject.toml"
        if not path.is_file():
            continue
        try:
            tool = _parsed(path.read_text("utf-8")).get("tool", {})
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"{path} cannot be read for settings: {error}") from None
        table = tool.get("tidewheel", {}) if isinstance(tool, dict) else {}
        if not isinstance(table, dict):
            raise ConfigurationError(f"[tool.tidewheel] in {path} is {shorten(table)}; it must be a table")
        source = f"[tool.tidewheel] in {path}"
        return {name: _from_toml(_known(name, source), value, source) for name, value in table.items()}
    return {}


@functools.lru_cache(maxsize=4)
def _parsed(text: str) -> dict[str, Any]:
    """Every app asks, and parsing the file takes longer than all else that making an app does."""
    return tomllib.loads(text)


def _from_toml(setting: Setting, value: Any, source: str) -> Any:
    # TOML has no null, so "none" stands for it here as it does in the environment.
    if setting.none_means and isinstance(value, str) and value.lower() == "none":
        return None
    return setting.check(value, source)


def _known(name: str, source: str) -> Setting:
    setting = SETTINGS.get(name)
    if setting is None:
        hint = suggest(name, SETTINGS) or f"; the settings are {', '.join(SETTINGS)}"
        raise ConfigurationError(f"{shorten(name)} ({source}) is no setting of Tidewheel{hint}")
    return setting
