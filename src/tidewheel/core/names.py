"""What names and identifying texts may look like: topics, tasks, steps, workers, keys, tenants. No I/O.

Every rule answers with the value itself, or with an ``InvalidInput`` that says value, limit and remedy.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from itertools import islice
from typing import Any, Final

from tidewheel.core.model import ROOT_TENANT
from tidewheel.errors import InvalidInput

MAX_NAME_LENGTH: Final = 200
"""Longest name of a topic, task, step, tenant or worker."""
MAX_TEXT_LENGTH: Final = 255
"""Longest correlation, user or service id."""

_topic = re.compile(r"[A-Za-z0-9_-]{1,200}")
# What stores and the beanstalkd door accept beyond our own rule; reading verbs must be able to name it.
_wire_topic = re.compile(r"[A-Za-z0-9_+/;.$()-]{1,200}")
_tenant = re.compile(r"[A-Za-z0-9_.:@-]{1,200}")
_uuid = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_control = re.compile(r"[\x00-\x1f\x7f]")


def is_topic(name: str) -> bool:
    """Whether a name may be a topic made in Python or over HTTP."""
    return _topic.fullmatch(name) is not None


def check_topic(value: Any) -> str:
    """A topic to write to."""
    if not isinstance(value, str) or not is_topic(value):
        raise InvalidInput(
            f"topic is {shorten(value)}; a topic is 1 to {MAX_NAME_LENGTH} characters of A-Z a-z 0-9 _ -"
        )
    return value


def check_any_topic(value: Any) -> str:
    """A topic to read, pause or filter by; it may have been made over the beanstalkd wire."""
    if not isinstance(value, str) or not _wire_topic.fullmatch(value):
        raise InvalidInput(
            f"topic is {shorten(value)}; "
            f"a topic is 1 to {MAX_NAME_LENGTH} characters of A-Z a-z 0-9 _ - + / ; . $ ( )"
        )
    return value


def check_task_name(value: Any) -> str:
    """A task's name: readable text on one line."""
    return check_one_line("task name", value)


def check_step_name(value: Any) -> str:
    """A step's name: readable text on one line."""
    return check_one_line("step name", value)


def check_worker_name(value: Any) -> str:
    """What a worker is called in jobs, logs and lists: readable text on one line."""
    return check_one_line("worker name", value)


def check_one_line(what: str, value: Any) -> str:
    name = check_text(what, value, MAX_NAME_LENGTH)
    if _control.search(name) or name != name.strip():
        raise InvalidInput(
            f"{what} is {shorten(value)}; it may hold no control characters and no spaces at its ends"
        )
    return name


def check_tenant(value: Any, *, uuids: bool = False) -> str:
    """A tenant id. With ``uuids`` (setting ``tenant_uuids``) a UUID, unless it is the root tenant."""
    if not isinstance(value, str) or not _tenant.fullmatch(value):
        raise InvalidInput(
            f"tenant is {shorten(value)}; "
            f"a tenant is 1 to {MAX_NAME_LENGTH} characters of A-Z a-z 0-9 _ . : @ -"
        )
    # One spelling of each: with two, one tenant would be two.
    if uuids and value != ROOT_TENANT and not _uuid.fullmatch(value):
        raise InvalidInput(
            f"tenant is {shorten(value)}; a tenant is {ROOT_TENANT!r} or a UUID in lower case with hyphens "
            "(tenant_uuids), for example str(uuid4())"
        )
    return value


def check_given_tenant(value: Any, *, uuids: bool = False) -> str:
    """A tenant that a caller or a job is given. Not the root tenant, whose jobs act for all tenants."""
    if check_tenant(value, uuids=uuids) == ROOT_TENANT:
        raise InvalidInput(
            f"tenant is {ROOT_TENANT}, which is reserved for what has no tenant; leave it out, or give this "
            "tenant another name"
        )
    return str(value)


def check_text(what: str, value: Any, maximum: int = MAX_TEXT_LENGTH, limit_name: str = "") -> str:
    """A non-empty text every store can keep: bounded, no NUL, no lone surrogates."""
    if not isinstance(value, str):
        raise InvalidInput(f"{what} is {shorten(value)} ({type(value).__name__}); it must be text")
    limit = f"{maximum:,} ({limit_name})" if limit_name else f"{maximum:,}"
    if not value:
        raise InvalidInput(f"{what} is empty; give 1 to {limit} characters")
    if len(value) > maximum:
        raise InvalidInput(f"{what} has {len(value):,} characters; the limit is {limit}")
    if "\x00" in value:
        raise InvalidInput(
            f"{what} is {shorten(value)}; it may not hold a NUL character (U+0000), which not every "
            "database can store"
        )
    if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
        raise InvalidInput(
            f"{what} is {shorten(value)}; it may not hold lone surrogates, which UTF-8 cannot carry"
        )
    return value


MAX_SUGGESTED_LENGTH: Final = 100
"""Max characters of a wrong name for which a near one is searched."""
MAX_SUGGESTIONS: Final = 300
"""Max known names that are compared with a wrong one."""


def suggest(name: str, known: Iterable[str]) -> str:
    """Return a hint at the nearest known name for a message, empty when none is near.

    The wrong name may come from anyone, and comparing takes time that grows with both lengths. So a long name
    gets no hint, and of many known names only the first are compared.
    """
    if len(name) > MAX_SUGGESTED_LENGTH:
        return ""
    nearest = difflib.get_close_matches(name, list(islice(known, MAX_SUGGESTIONS)), n=1)
    return f" (did you mean {nearest[0]}?)" if nearest else ""


def clip(text: str, length: int) -> str:
    """Return the text, cut to ``length`` characters and with its full length named if it is longer."""
    return text if len(text) <= length else f"{text[:length]}… ({len(text):,} characters)"


def shorten(value: Any, length: int = 60) -> str:
    """A value as shown in messages: its repr, bounded, whatever it is."""
    if isinstance(value, str) and len(value) > length:
        return f"{value[:length]!r}… ({len(value):,} characters)"
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 128:
        # Python refuses to print integers of more than 4,300 digits.
        return f"about {'-' if value < 0 else ''}2^{value.bit_length()}"
    try:
        shown = repr(value)
    except Exception as error:  # a value whose repr fails must not hide what is wrong with it
        return f"<{type(value).__name__}, whose repr raised {type(error).__name__}>"
    return shown if len(shown) <= length else f"{shown[:length]}…"


PULLER_PREFIX: Final = "pull:"
"""How the names of programs begin that pull jobs by hand. They list themselves while they hold any."""
