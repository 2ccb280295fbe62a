"""Who may do what: scopes, rules, topics, and what is written down about it."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from typing import Any

import msgspec
import pytest

from tidewheel import (
    ConfigurationError,
    HandlerNotFound,
    InvalidInput,
    JobNotFound,
    NotAuthenticated,
    NotOpen,
    NotPermitted,
    SecurityContext,
    StoreUnavailable,
    Tidewheel,
    WrongState,
    acting_as,
)
from tidewheel.access.audit_log import AuditLine, make_audit_line, record_action
from tidewheel.access.caller import ANONYMOUS, Caller, CallerKind, Scope
from tidewheel.core.conditions import Compare, Comparison, Field
from tidewheel.testing.clock import FrozenClock

ADA = Caller(
    CallerKind.KEY, "key 1", id="1", tenant="acme", user_id="ada", auth={"id": "ada", "role": "staff"}
)
BOSS = Caller(CallerKind.KEY, "key 0", id="0", superuser=True)
READER = Caller(CallerKind.KEY, "key 2", id="2", scopes=frozenset({Scope.READ}), superuser=True)


@asynccontextmanager
async def opened(**settings: Any) -> AsyncIterator[Tidewheel]:
    async with Tidewheel("memory://", clock=FrozenClock(), **settings) as app:

        @app.task
        async def mail(user_id: str = "") -> None: ...

        yield app


def enqueue(app: Tidewheel, caller: Caller, topic: str = "mail", **given: Any) -> SecurityContext | None:
    task = topic if topic in app.registry.tasks else None
    return app.access.check_enqueue(caller, topic=topic, task=task, **({"body": {}} | given))


async def test_everything_is_closed_by_default() -> None:
    """Without rules superusers alone get in; those who showed nothing are told to show something."""
    async with opened() as app:
        with pytest.raises(NotAuthenticated, match="needs an API key"):
            enqueue(app, ANONYMOUS)
        with pytest.raises(NotPermitted, match=r"key 1 may not enqueue to topic 'mail' \(enqueue_rule\)"):
            enqueue(app, ADA)
        for changing in (False, True):
            with pytest.raises(NotAuthenticated):
                app.access.visible(ANONYMOUS, changing=changing)
            with pytest.raises(NotPermitted):
                app.access.visible(ADA, changing=changing)
            assert app.access.visible(BOSS, changing=changing) is None
        assert enqueue(app, BOSS) is None
        assert await app.access.authenticate() is ANONYMOUS


async def test_a_public_rule_lets_everybody_act_for_their_own_tenant() -> None:
    """Strangers act for the root tenant, others for that of their key."""
    async with opened(enqueue_rule="true", manage_rule="true") as app:
        assert enqueue(app, ANONYMOUS) == SecurityContext("root", allow_root=True)
        assert enqueue(app, ADA) == SecurityContext("acme", "ada")
        assert app.access.visible(ANONYMOUS, changing=True) == SecurityContext("root", allow_root=True)
        assert app.access.visible(ADA, changing=False) == SecurityContext("acme", "ada")
        assert not app.access.may_see_everything(ADA)
        assert app.access.may_see_everything(BOSS)


async def test_an_enqueue_rule_sees_the_caller_the_body_and_the_new_job() -> None:
    """The tenant and the user are the caller's, whatever the body says."""
    rule = (
        "@request.body.payload.user_id = @request.auth.id && topic = 'mail' && task = 'mail' "
        "&& tenant = 'acme' && user_id = 'ada' && priority <= 10 && state = 'pending' "
        "&& @request.method = 'POST'"
    )
    async with opened(enqueue_rule=rule) as app:
        body = {"tenant": "zeta", "payload": {"user_id": "ada"}}
        assert enqueue(app, ADA, body=body, job={"tenant": "zeta", "user_id": "bob"}) is not None
        refused: list[dict[str, Any]] = [{"body": {}}, {"body": body, "job": {"priority": 11}}]
        for given in refused:
            with pytest.raises(NotPermitted):
                enqueue(app, ADA, **given)


async def test_scopes_and_rules_must_both_allow() -> None:
    """A key that may read does nothing else, also in the hands of a superuser."""
    async with opened(enqueue_rule="true", manage_rule="true") as app:
        assert app.access.visible(READER, changing=False) is None
        refused: list[Callable[[], object]] = [
            lambda: app.access.visible(READER, changing=True),
            lambda: enqueue(app, READER),
            lambda: app.access.check_superuser(READER, "make keys", changing=True),
        ]
        for ask in refused:
            with pytest.raises(NotPermitted, match="good for: read"):
                ask()
        app.access.check_superuser(READER, "see keys", changing=False)
        with pytest.raises(NotPermitted):
            app.access.check_superuser(ADA, "see keys", changing=False)
        with pytest.raises(NotAuthenticated):
            app.access.check_superuser(ANONYMOUS, "see keys", changing=False)


async def test_a_manage_rule_is_the_row_filter_of_the_context() -> None:
    """What it does not show is not there: not to be found, listed, counted or changed."""
    async with opened(manage_rule="user_id = @request.auth.id") as app:
        context = app.access.visible(ADA, changing=True)
        assert context is not None
        assert context.only == Compare(Field.USER_ID, Comparison.EQUAL, "ada")
        with acting_as(SecurityContext("acme", "bob")):
            his = await app.enqueue("mail", {"user_id": "x"})
        with acting_as(SecurityContext("acme", "ada")):
            hers = await app.enqueue("mail", {"user_id": "x"})
        with acting_as(context):
            assert [job.id for job in (await app.jobs()).items] == [hers.id]
            assert (await app.count()).total == 1
            assert (await app.get(hers.id)).id == hers.id
            for call in (app.get(his.id), app.cancel(his.id), app.delete(his.id)):
                with pytest.raises(JobNotFound):
                    await call
        rule = "@request.auth.role = 'boss' || topic = 'none'"
    async with opened(manage_rule=f"@request.auth.role != 'staff' && ({rule})") as app:
        with pytest.raises(NotPermitted, match="may not see jobs"):
            app.access.visible(ADA, changing=False)


async def test_topics_and_tasks_that_can_be_enqueued_to() -> None:
    """Those of the app's tasks, or those that are listed; superusers are exempt from the list, not from
    naming a task that exists.
    """
    async with opened(enqueue_rule="true") as app:
        with pytest.raises(NotPermitted, match="allowed_topics"):
            enqueue(app, ADA, "other")
        with pytest.raises(HandlerNotFound, match="did you mean mail"):
            enqueue(app, BOSS, "mial")
    async with opened(enqueue_rule="true", allowed_topics=["raw"]) as app:
        assert enqueue(app, ADA, "raw") is not None
        assert enqueue(app, BOSS, "raw") is None
        assert enqueue(app, BOSS, "mail") is None
        with pytest.raises(NotPermitted):
            enqueue(app, ADA, "mail")
        with pytest.raises(HandlerNotFound):
            enqueue(app, BOSS, "unknown")


@pytest.mark.parametrize("name", ["enqueue_rule", "manage_rule"])
def test_a_bad_rule_is_found_at_the_start(name: str) -> None:
    """Not at the first request."""
    app = Tidewheel("memory://", **{name: "topic = "})  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=f"{name} cannot be read at its end"):
        _ = app.access


def test_a_manage_rule_has_no_body() -> None:
    """There is none when jobs are listed."""
    with pytest.raises(ConfigurationError, match=r"there is no @request\.body\.topic"):
        _ = Tidewheel("memory://", manage_rule="@request.body.topic = 'a'").access


async def test_another_store_for_a_while_has_keys_of_its_own(app: Tidewheel) -> None:
    """What was remembered of the one is not believed of the other."""
    key = (await app.access.create_key()).key
    before = app.access
    with app.on_store("memory://"):
        async with app:
            with pytest.raises(NotAuthenticated):
                await app.access.authenticate(bearer=key)
    assert app.access is before
    await app.access.authenticate(bearer=key)


# -- the audit log --------------------------------------------------------------------------------------


async def test_what_operators_do_is_written_down(app: Tidewheel, clock: FrozenClock) -> None:
    """Who, what, to what, from where and when; newest first."""
    made = await app.access.create_key("billing", tenant="acme", by=BOSS, address="192.0.2.1")
    clock.advance(1)
    await app.access.revoke_key(made.info.id)
    newest, oldest = (await app.access.audit.lines()).lines
    assert (newest.action, newest.actor, newest.kind) == ("key.revoke", "system", "system")
    assert (oldest.action, oldest.actor, oldest.kind) == ("key.create", "key 0", "key")
    assert (oldest.target, oldest.address) == (made.info.id, "192.0.2.1")
    assert oldest.details["name"] == "billing"
    assert (newest.target, newest.details) == (made.info.id, {"name": "billing"})
    assert newest.at is not None
    assert oldest.at is not None
    assert newest.at > oldest.at


@pytest.mark.parametrize("name", ["", "a:b", "a/b", " a", "a\n", "x" * 101])
async def test_a_superuser_has_a_name_that_fits_its_setting_and_its_address(
    app: Tidewheel, name: str
) -> None:
    """A colon ends it in the setting, a slash in the API's paths."""
    with pytest.raises(InvalidInput, match="name of a superuser"):
        await app.access.create_superuser(name, "correct horse")
    assert (await app.access.superusers()) == ([], None)


async def test_logins_are_written_down(app: Tidewheel) -> None:
    """Good and bad ones, and the way out."""
    await app.access.create_superuser("ada", "correct horse")
    session = await app.access.log_in("ada", "correct horse", address="192.0.2.1")
    with pytest.raises(NotAuthenticated):
        await app.access.log_in("eve", "wrong", address="192.0.2.9")
    await app.access.log_out(session.caller)
    lines = (await app.access.audit.lines()).lines
    assert [(line.action, line.actor, line.address) for line in lines] == [
        ("logout", "ada", None),
        ("login.failed", "(nobody of that name)", "192.0.2.9"),
        ("login", "ada", "192.0.2.1"),
        ("superuser.create", "system", None),
    ]


async def test_many_lines_are_written_at_once_and_read_page_by_page(app: Tidewheel) -> None:
    """In the order in which they were written."""
    lines = [
        make_audit_line(ADA, "job.requeue", f"job {number}", details={"n": number}) for number in range(7)
    ]
    await app.access.audit.record(*lines)
    first = await app.access.audit.lines(limit=4)
    second = await app.access.audit.lines(limit=4, cursor=first.cursor)
    assert [line.target for line in (*first.lines, *second.lines)] == [f"job {n}" for n in range(6, -1, -1)]
    assert second.cursor is None
    assert {line.tenant for line in first.lines} == {"acme"}
    with pytest.raises(InvalidInput, match="cursor"):
        await app.access.audit.lines(cursor="nonsense")


async def test_the_log_is_kept_for_audit_retention(clock: FrozenClock) -> None:
    """Then lines are gone; without a retention they stay."""
    for retention, left in ((3600, 0), (None, 1)):
        async with Tidewheel("memory://", clock=clock, audit_retention=retention) as app:
            await app.access.audit.record(AuditLine("topic.pause", "ada", "session", "mail"))
            clock.advance(3600)
            assert len((await app.access.audit.lines()).lines) == left


async def test_long_lines_are_cut_and_keep_a_hash(app: Tidewheel) -> None:
    """A long value keeps its beginning, its size and a hash; the others of the line stay as they are."""
    await app.access.audit.record(AuditLine("login.failed", "x" * 10_000, "anonymous"))
    [line] = (await app.access.audit.lines()).lines
    assert len(line.actor) == 300
    await app.access.audit.record(make_audit_line(ADA, "job.delete", details={"all": "x" * 5000, "done": 3}))
    line = (await app.access.audit.lines()).lines[0]
    whole = msgspec.json.encode("x" * 5000)
    assert line.details["done"] == 3
    assert line.details["all"]["bytes"] == len(whole)
    assert line.details["all"]["sha256"] == hashlib.sha256(whole).hexdigest()
    assert line.details["all"]["cut"].startswith('"xxx')
    await app.access.audit.record(
        make_audit_line(ADA, "job.delete", details={f"name {n}": "x" * 100 for n in range(100)})
    )
    line = (await app.access.audit.lines()).lines[0]
    assert line.details["all"]["bytes"] > 10_000


_nested: list[Any] = []
for _ in range(2000):
    _nested = [_nested]


@pytest.mark.parametrize(
    "details",
    [
        {"text": "\ud800", "\udfff": 1},
        {"number": 10**400},
        {"number": float("nan")},
        {"object": object()},
        {"set": {1}, "bytes": b"\xff", 5: "five"},
        {"deep": _nested},
        {"many": ["\ud800" * 100] * 1000},
    ],
    ids=["half a character", "a huge number", "no number", "an object", "other kinds", "deep", "long"],
)
async def test_no_details_are_a_reason_not_to_record(app: Tidewheel, details: dict[Any, Any]) -> None:
    """Recording does not fail because of what is in a line."""
    await app.access.audit.record(make_audit_line(ADA, "job.delete", "\ud800", details=details))
    [line] = (await app.access.audit.lines()).lines
    assert line.action == "job.delete"
    assert line.details


async def test_an_action_is_in_the_log_before_it_is_done(app: Tidewheel) -> None:
    """Its outcome is added afterwards, to the same line."""
    log = app.access.audit
    async with record_action(
        log, make_audit_line(ADA, "bulk.start", details={"filter": "x" * 5000})
    ) as entry:
        [line] = (await log.lines()).lines
        assert (line.action, line.outcome, line.details["filter"]["bytes"]) == ("bulk.start", "started", 5002)
        entry.target = "42"
        entry.details["done"] = 7
    [line] = (await log.lines()).lines
    assert (line.outcome, line.target, line.details["done"]) == ("done", "42", 7)


async def test_a_line_says_how_its_action_ended(app: Tidewheel) -> None:
    """Failed, refused (no line, as nothing was changed), or cut off: then it stays started."""
    log = app.access.audit
    for error, outcomes in (
        (RuntimeError("a bug"), ["failed"]),
        (StoreUnavailable("away"), ["failed"]),
        (WrongState("too late"), []),
        (asyncio.CancelledError(), ["started"]),
    ):
        with pytest.raises(type(error)):
            async with record_action(log, make_audit_line(ADA, "job.delete", str(error))):
                raise error
        lines = (await log.lines(target=str(error) or None, limit=1)).lines
        assert [line.outcome for line in lines] == outcomes


async def test_an_app_that_is_closed_meanwhile_does_not_undo_an_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The outcome goes to the program's log then, and no error of the action is hidden."""
    for error, told in (
        (None, "done, but not"),
        (WrongState("too late"), ""),
        (NotOpen("gone"), "failed, but not"),
    ):
        caplog.clear()
        async with Tidewheel("memory://") as app:
            with nullcontext() if error is None else pytest.raises(type(error), match=str(error)):
                async with record_action(app.access.audit, make_audit_line(ADA, "job.delete")):
                    await app.close()
                    if error is not None:
                        raise error
        assert told in caplog.text
        assert bool(told) == ("job.delete" in caplog.text)
    async with Tidewheel("memory://") as app:
        log = app.access.audit
    await log.record(make_audit_line(ADA, "login"))
    assert "login" in caplog.text


async def test_what_cannot_be_recorded_is_not_done(app: Tidewheel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a line of the intent there is no action."""
    made = await app.access.create_key("kept")

    async def gone(documents: object) -> None:
        raise StoreUnavailable("the database went away")

    with monkeypatch.context() as patch:
        patch.setattr(app.store, "write_documents", gone)
        with pytest.raises(StoreUnavailable):
            await app.access.revoke_key(made.info.id)
    assert (await app.access.authenticate(bearer=made.key)).id == made.info.id


async def test_a_key_given_for_its_id_is_never_in_the_log(app: Tidewheel) -> None:
    """Not for a moment: the id is checked before the intent is written."""
    made = await app.access.create_key("billing")
    written: list[bytes] = []
    write = app.store.write_documents

    async def watched(documents: Any) -> Any:
        written.extend(document.body for document in documents)
        return await write(documents)

    app.store.write_documents = watched  # type: ignore[method-assign]
    with pytest.raises(InvalidInput, match="that is a key"):
        await app.access.revoke_key(made.key)
    assert not any(made.key.encode() in body for body in written)


def test_keys_can_be_made_by_blocking_code() -> None:
    """Every call has its twin, those of the audit log as well."""
    app = Tidewheel("memory://")
    with app.sync:
        made = app.sync.access.create_key("billing")
        assert app.sync.access.authenticate(bearer=made.key).id == made.info.id
        assert [key.name for key in app.sync.access.keys()[0]] == ["billing"]
        assert [line.action for line in app.sync.access.audit.lines().lines] == ["key.create"]


async def test_what_the_store_cannot_take_goes_to_the_programs_log(
    app: Tidewheel, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It was done: saying that it failed would be wrong, and keeping silent worse."""

    async def gone(documents: object) -> None:
        raise StoreUnavailable("the database went away")

    monkeypatch.setattr(app.store, "write_documents", gone)
    await app.access.audit.record(AuditLine("job.delete", "ada", "session", "42"))
    [record] = caplog.records
    assert (record.levelname, record.name) == ("ERROR", "tidewheel.access")
    assert '"action":"job.delete","actor":"ada"' in record.getMessage()
    assert "the database went away" in record.getMessage()
