"""Who is asking, and may they: what every door that lets strangers in has to ask."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from tidewheel.access import audit_log, document_pages
from tidewheel.access.api_keys import KEY_PREFIX, ApiKey, ApiKeyStore, NewApiKey, check_key_id
from tidewheel.access.audit_log import AuditLine, AuditLog
from tidewheel.access.cache import CallerCache
from tidewheel.access.caller import ANONYMOUS, SYSTEM_CALLER, Caller, CallerKind, Scope
from tidewheel.access.credentials import Ability, CredentialRejected, Explanation, RejectionLog
from tidewheel.access.login_throttle import LoginQueue, LoginThrottle, queue_network
from tidewheel.access.rules import (
    RuleRequest,
    paths_open_when_missing,
    read_rule,
    reads_body,
    row_filter,
    rule_allows,
)
from tidewheel.access.sessions import Session, SessionStore
from tidewheel.access.superusers import Superuser, SuperuserStore, check_superuser_name
from tidewheel.core.conditions import ALWAYS, NEVER, Condition, all_of
from tidewheel.core.names import shorten, suggest
from tidewheel.core.security_context import SecurityContext, require_system_context
from tidewheel.errors import (
    HandlerNotFound,
    InvalidInput,
    NotAuthenticated,
    NotPermitted,
    TooManyAttempts,
    WrongState,
)

if TYPE_CHECKING:
    from tidewheel.access.tokens import TokenVerifier
    from tidewheel.app import Tidewheel

_log = logging.getLogger("tidewheel.access")

INVALID_CREDENTIAL_MESSAGE: Final = (
    "the key, token or session is not valid; it may be wrong, expired or revoked"
)
"""Whatever was wrong with it: who tries keys must not learn which of them exist."""
UNKNOWN_ACTOR: Final = "(nobody of that name)"
LOGIN_FAILED_MESSAGE: Final = "the name or the password is wrong"


class Access:
    """Keys, tokens, sessions, rules and the audit log of one app. ``app.access`` has it."""

    def __init__(self, app: Tidewheel) -> None:
        settings = app.settings
        self._app = app
        self._enqueue_rule = read_rule("enqueue_rule", settings.enqueue_rule, with_body=True)
        self._manage_rule = read_rule("manage_rule", settings.manage_rule)
        self._enqueue_rule_reads_body = reads_body(self._enqueue_rule)
        self._may_enqueue_cache = CallerCache(self._may_enqueue_everything)
        self._context_cache = CallerCache(Caller.context)
        self._enqueue_context_cache = CallerCache(self._enqueue_context)
        self._keys = ApiKeyStore(app)
        self._superusers = SuperuserStore(app)
        self._sessions = SessionStore(app, self._superusers)
        self._login_throttle = LoginThrottle(app.clock)
        self._login_queue = LoginQueue()
        self._rejections = RejectionLog(app.clock)
        self._tokens = _make_token_verifier(app)
        self._audit = AuditLog(app)

    @property
    def audit(self) -> AuditLog:
        """Who did what."""
        return self._audit

    def warn_about_rules(self) -> None:
        """Log which rules pass callers or requests because they lack a value."""
        for rule in (self._enqueue_rule, self._manage_rule):
            if paths := paths_open_when_missing(rule):
                _log.warning(
                    "%s passes when %s is missing: a comparison such as != is true for a missing value. Add "
                    "%s != '' && … if that is not meant.",
                    rule.name,
                    " or ".join(paths),
                    paths[0],
                )

    # -- who is it --------------------------------------------------------------------------------------

    async def authenticate(self, *, bearer: str | None = None, cookie: str | None = None) -> Caller:
        """Who showed this: an API key or a token, or else the value of the session's cookie.

        ``NotAuthenticated`` when something was shown and proves nothing; somebody who showed nothing is
        anonymous.
        """
        try:
            if bearer is not None:
                return await self._bearer(bearer)
            if cookie is None:
                return ANONYMOUS
            caller = await self._sessions.authenticate(cookie)
            if caller is None:
                raise CredentialRejected("a session is not known: it expired, or was ended")
        except CredentialRejected as rejected:
            self._rejections.log(rejected)
            raise NotAuthenticated(INVALID_CREDENTIAL_MESSAGE) from None
        return caller

    async def _bearer(self, text: str, *, note_use: bool = True) -> Caller:
        if text.startswith(KEY_PREFIX):
            return await self._keys.authenticate(text, note_use=note_use)
        if self._tokens is None:
            raise CredentialRejected(
                "a credential is no API key, and tokens are not accepted",
                "neither jwt_secret nor jwt_jwks_url is set",
            )
        return await self._tokens.authenticate(text)

    async def explain(self, bearer: str) -> Explanation:
        """Return what an API key or a token may do, or why it is rejected. Not for the caller's eyes."""
        require_system_context("explain")
        try:
            caller = await self._bearer(bearer.strip(), note_use=False)
        except CredentialRejected as rejected:
            return Explanation(None, rejected=str(rejected))
        scopes, seen = caller.scopes, self._read_ability(caller, "GET")
        reads = Scope.READ in scopes
        abilities = (
            ("see states, errors and results of jobs", Scope.READ, reads, seen),
            ("see payloads", Scope.MANAGE, reads and caller.sees_payloads, seen),
            ("see tracebacks", Scope.TRACEBACKS, reads and caller.sees_tracebacks, seen),
            ("enqueue jobs", Scope.ENQUEUE, Scope.ENQUEUE in scopes, self._enqueue_ability(caller)),
            (
                "requeue and cancel jobs",
                Scope.MANAGE,
                Scope.MANAGE in scopes,
                self._read_ability(caller, "POST"),
            ),
            ("delete jobs", Scope.MANAGE, Scope.MANAGE in scopes, self._read_ability(caller, "DELETE")),
            ("run jobs as a worker", Scope.WORK, Scope.WORK in scopes, (False, "for superusers only")),
        )
        return Explanation(caller, tuple(_ability(caller, *ability) for ability in abilities))

    def _read_ability(self, caller: Caller, method: str) -> tuple[bool, str]:
        shown = self.shown(caller, method=method)
        if shown == NEVER:
            return False, "manage_rule"
        return True, "all jobs of its tenant" if shown == ALWAYS else "the jobs that manage_rule shows"

    def _enqueue_ability(self, caller: Caller) -> tuple[bool, str]:
        allowed = row_filter(self._enqueue_rule, RuleRequest(caller.auth, "POST"))
        if allowed == NEVER and not self._enqueue_rule_reads_body:
            return False, "enqueue_rule"
        return True, "everything" if allowed == ALWAYS else "the jobs that enqueue_rule allows"

    async def log_in(
        self, name: str, password: str, *, address: str | None = None, cookie: str | None = None
    ) -> Session:
        """Begin a session of a superuser.

        ``TooManyAttempts`` after a few failures, and when too many logins wait. A client that has logged in
        before from this address, or shows the ``cookie`` of a session, is served before others.
        """
        tried = name[:200]
        attempt = self._login_throttle.begin(tried, address)
        known = self._login_throttle.is_known(tried, address) or (
            cookie is not None and await self._sessions.authenticate(cookie) is not None
        )
        try:
            async with self._login_queue.turn(queue_network(address), known=known):
                account = await self._superusers.verify_login(name, password)
        except TooManyAttempts:
            attempt.withdraw()
            raise
        if account is None:
            # What is nobody's name is often a password, typed into the wrong field.
            known = await self._superusers.account(name) is not None
            actor = name if known else UNKNOWN_ACTOR
            await self.audit.record(AuditLine("login.failed", actor, CallerKind.ANONYMOUS, address=address))
            attempt.mark_failed()
            raise NotAuthenticated(LOGIN_FAILED_MESSAGE)
        attempt.mark_succeeded()
        session = await self._sessions.create(account)
        await self.audit.record(audit_log.make_audit_line(session.caller, "login", address=address))
        return session

    async def log_out(
        self,
        caller: Caller,
        *,
        cookie: str | None = None,
        everywhere: bool = False,
        address: str | None = None,
    ) -> None:
        """End the session of this cookie, or with ``everywhere`` all sessions of the caller."""
        action = "logout.everywhere" if everywhere else "logout"
        async with audit_log.record_action(
            self.audit, audit_log.make_audit_line(caller, action, address=address)
        ):
            if cookie is not None:
                await self._sessions.end(cookie)
            if everywhere and caller.kind is CallerKind.SESSION and caller.id is not None:
                await self._superusers.end_sessions(caller.id)

    async def csrf(self, cookie: str) -> str:
        """The token that a page sends along with whatever changes something in this session."""
        return self._sessions.csrf(cookie)

    async def is_csrf(self, cookie: str, token: str | None) -> bool:
        """Whether it is that token."""
        return token is not None and self._sessions.is_csrf(cookie, token)

    # -- may they ---------------------------------------------------------------------------------------

    def check_enqueue(
        self,
        caller: Caller,
        *,
        topic: str,
        task: str | None,
        body: Mapping[str, Any],
        job: Mapping[str, Any] | None = None,
        method: str = "POST",
    ) -> SecurityContext | None:
        """Whether the caller may make this job; on whose behalf it is made.

        ``task`` is the name of the job's task, or None where it has none. ``job`` has what else a rule can
        ask of a new job: priority, key, correlation_id. ``NotAuthenticated`` or ``NotPermitted`` where a rule
        or a scope is against it or the topic, or the task on this topic, is not allowed; ``HandlerNotFound``
        where no task of the app would run it.
        """
        self.check_enqueue_rule(caller, topic=topic, task=task, body=body, job=job, method=method)
        context = self.enqueue_context(caller)
        known = None if task is None else self._app.registry.find(task)
        if context is not None:
            if not self._is_allowed(topic):
                raise NotPermitted(
                    f"topic {shorten(topic)} cannot be enqueued to from outside; the operator of this queue "
                    "can add it to allowed_topics"
                )
            at_home = task is None or (known is not None and known.topic == topic)
            if not at_home and task not in self._app.settings.allowed_tasks:
                raise NotPermitted(
                    f"task {shorten(task)} cannot be enqueued to topic {shorten(topic)} from outside, only "
                    "to its own topic; the operator of this queue can add it to allowed_tasks"
                )
        if known is None and topic not in self._app.settings.allowed_topics:
            names = self._app.registry.tasks if context is None else ()
            raise HandlerNotFound(
                f"there is no task {shorten(topic)}{suggest(topic, names)}; "
                "name one of the app's tasks, or a topic of allowed_topics"
            )
        return context

    def check_enqueue_rule(
        self,
        caller: Caller,
        *,
        topic: str,
        task: str | None,
        body: Mapping[str, Any],
        job: Mapping[str, Any] | None = None,
        method: str = "POST",
    ) -> None:
        """The part of ``check_enqueue`` that is about the caller: the scope and the rule."""
        self._check_scope(caller, Scope.ENQUEUE)
        # Most rules are about the caller alone, and then most callers may enqueue whatever there is.
        if caller.superuser or (
            method == "POST" and not self._enqueue_rule_reads_body and self._may_enqueue_cache.get(caller)
        ):
            return
        fields = {
            "state": "pending",
            "attempt": 0,
            "priority": 0,
            "created": self._app.clock.now(),
            **(job or {}),
            "topic": topic,
            "task": task or "",
            "tenant": caller.tenant,
            "user_id": caller.user_id,
            "service_id": caller.service_id,
        }
        if not rule_allows(self._enqueue_rule, RuleRequest(caller.auth, method, body), fields):
            raise _permission_error(caller, f"enqueue to topic {shorten(topic)}", "enqueue_rule")

    def enqueue_rule_reads_job(self, caller: Caller) -> bool:
        """Whether ``check_enqueue`` looks at the body and the job, or knows by the caller alone."""
        if caller.superuser or self._enqueue_rule.expression is None:
            return False
        return self._enqueue_rule_reads_body or not self._may_enqueue_cache.get(caller)

    def _may_enqueue_everything(self, caller: Caller) -> bool:
        return row_filter(self._enqueue_rule, RuleRequest(caller.auth, "POST")) == ALWAYS

    def _is_allowed(self, topic: str) -> bool:
        """Whether jobs of this topic may come from outside."""
        allowed = self._app.settings.allowed_topics
        return topic in allowed if allowed else bool(self._app.registry.tasks_on_topic(topic))

    def context(self, caller: Caller) -> SecurityContext | None:
        """On whose behalf the caller acts, whatever it may."""
        return self._context_cache.get(caller)

    def enqueue_context(self, caller: Caller, *, replacing: bool = False) -> SecurityContext | None:
        """On whose behalf the caller makes jobs. Through a key or ``after`` it meets those jobs only that the
        manage rule shows it; ``replacing``: that the rule lets it change.
        """
        return self._enqueue_context_cache.get(caller)[replacing]

    def _enqueue_context(self, caller: Caller) -> tuple[SecurityContext | None, SecurityContext | None]:
        context = self._context_cache.get(caller)
        if context is None:
            return None, None
        seen, changed = self.shown(caller, method="GET"), self.shown(caller, method="POST")
        return _restrict_context(context, seen), _restrict_context(context, all_of(seen, changed))

    def visible(self, caller: Caller, *, changing: bool, method: str = "GET") -> SecurityContext | None:
        """On whose behalf the caller sees (or, ``changing``, changes) jobs: None is everybody's.

        What the rule says about jobs is in the context: jobs it does not show do not exist for the caller.
        """
        self._check_scope(caller, Scope.MANAGE if changing else Scope.READ)
        context = self._context_cache.get(caller)
        if context is None:
            return None
        shown = self.shown(caller, method=method)
        if shown == NEVER:
            verb = "change" if changing else "see"
            raise _permission_error(caller, f"{verb} jobs", "manage_rule")
        return _restrict_context(context, shown)

    def shown(self, caller: Caller, *, method: str = "GET") -> Condition:
        """What the manage rule leaves of all jobs for this caller, tenants aside."""
        if caller.superuser:
            return ALWAYS
        return row_filter(self._manage_rule, RuleRequest(caller.auth, method))

    def may_see_everything(self, caller: Caller) -> bool:
        """Whether workers, tenants, keys and the audit log are for its eyes."""
        return caller.superuser

    def check_superuser(self, caller: Caller, what: str, *, changing: bool) -> None:
        """For what is about the whole queue."""
        self._check_scope(caller, Scope.MANAGE if changing else Scope.READ)
        if not caller.superuser:
            raise _permission_error(caller, what, "superusers only")

    def check_worker(self, caller: Caller) -> None:
        """For who takes jobs to run them: a part of the system, whatever tenant a job is of."""
        self._check_scope(caller, Scope.WORK)
        if not caller.superuser:
            raise _permission_error(caller, "take jobs to run them", "superusers only")

    def _check_scope(self, caller: Caller, scope: Scope) -> None:
        if scope not in caller.scopes:
            good = ", ".join(sorted(caller.scopes)) or "nothing"
            raise NotPermitted(f"this needs the scope {scope}; what was shown is good for: {good}")

    # -- keys -------------------------------------------------------------------------------------------

    async def create_key(
        self,
        name: str = "",
        *,
        tenant: str | None = None,
        superuser: bool = False,
        scopes: Iterable[str] | None = None,
        user_id: str | None = None,
        service_id: str | None = None,
        expires: float | timedelta | None = None,
        by: Caller = SYSTEM_CALLER,
        address: str | None = None,
    ) -> NewApiKey:
        """Make an API key. Its text is in the answer, and nowhere else ever again.

        Without ``superuser`` it acts for one tenant, the root tenant unless told otherwise, as far as its
        scopes and the rules allow. ``by`` is for the audit log.
        """
        require_system_context("create_key")
        line = audit_log.make_audit_line(by, "key.create", details={"name": name}, address=address)
        async with audit_log.record_action(self.audit, line) as entry:
            made = await self._keys.create(
                name,
                tenant=tenant,
                superuser=superuser,
                scopes=scopes,
                user_id=user_id,
                service_id=service_id,
                expires=expires,
            )
            info = made.info
            entry.target = info.id
            entry.details |= {"superuser": info.superuser, "scopes": sorted(info.scopes)}
            entry.details["tenant"] = info.tenant
        return made

    async def keys(
        self, *, limit: int = document_pages.DEFAULT_PAGE_SIZE, cursor: str | None = None
    ) -> tuple[list[ApiKey], str | None]:
        """The keys, newest first, and the cursor of the next page; revoked and expired ones for a month."""
        require_system_context("keys")
        return await self._keys.list_page(limit=limit, cursor=cursor)

    async def revoke_key(
        self, key_id: str, *, by: Caller = SYSTEM_CALLER, address: str | None = None
    ) -> ApiKey:
        """End a key: here at once, in other processes within a second. It cannot be undone."""
        require_system_context("revoke_key")
        check_key_id(key_id)  # before it is written to the log: it may be the key itself
        async with audit_log.record_action(
            self.audit, audit_log.make_audit_line(by, "key.revoke", key_id, address=address)
        ) as entry:
            revoked = await self._keys.revoke(key_id)
            if revoked is None:
                raise InvalidInput(
                    f"there is no key {shorten(key_id)}; `tidewheel keys list` has those there are"
                )
            entry.details["name"] = revoked.name
        return revoked

    # -- superusers -------------------------------------------------------------------------------------

    async def create_superuser(
        self,
        name: str,
        password: str,
        *,
        new: bool = False,
        by: Caller = SYSTEM_CALLER,
        address: str | None = None,
    ) -> None:
        """Make a superuser, or give the one there is another password, which ends all its sessions.

        ``new``: only where there is none of that name; otherwise ``WrongState``.
        """
        require_system_context("create_superuser")
        check_superuser_name(name)
        async with audit_log.record_action(
            self.audit, audit_log.make_audit_line(by, "superuser.create", name, address=address)
        ):
            if not await self._superusers.create(name, password, only_version=0 if new else None):
                raise WrongState(f"there is a superuser {shorten(name)} already; give it another password")

    async def change_password(
        self, name: str, password: str, *, by: Caller = SYSTEM_CALLER, address: str | None = None
    ) -> None:
        """Give a superuser another password, which ends all its sessions."""
        require_system_context("change_password")
        check_superuser_name(name)
        async with audit_log.record_action(
            self.audit, audit_log.make_audit_line(by, "superuser.password", name, address=address)
        ):
            if not await self._superusers.change_password(name, password):
                raise InvalidInput(f"there is no superuser {shorten(name)}")

    async def has_superuser(self, name: str) -> bool:
        """Whether there is one of that name, stored or configured."""
        require_system_context("has_superuser")
        return await self._superusers.exists(name)

    @property
    def configured_superuser(self) -> str | None:
        """The name of the one of the setting ``superuser``, which is not stored; None where there is none."""
        return self._superusers.configured

    async def superusers(
        self, *, limit: int = document_pages.DEFAULT_PAGE_SIZE, cursor: str | None = None
    ) -> tuple[list[Superuser], str | None]:
        """Those that are stored, newest first; not the one of the setting ``superuser``."""
        require_system_context("superusers")
        return await self._superusers.list_page(limit=limit, cursor=cursor)

    async def remove_superuser(
        self, name: str, *, keep_last: bool = False, by: Caller = SYSTEM_CALLER, address: str | None = None
    ) -> None:
        """Forget a superuser, which ends its sessions.

        ``keep_last``: ``WrongState`` where nobody could log in then.
        """
        require_system_context("remove_superuser")
        check_superuser_name(name)
        async with audit_log.record_action(
            self.audit, audit_log.make_audit_line(by, "superuser.remove", name, address=address)
        ):
            if not await self._superusers.remove(name, keep_last=keep_last):
                raise InvalidInput(f"there is no superuser {shorten(name)}")

    async def ensure_superuser(self) -> str | None:
        """Where nobody could log in: make ``admin``; its password, to be shown once. Otherwise None."""
        require_system_context("ensure_superuser")
        if await self._superusers.has_any():
            return None
        async with audit_log.record_action(
            self.audit, audit_log.make_audit_line(SYSTEM_CALLER, "superuser.create", "admin")
        ) as entry:
            password = await self._superusers.create_first()
            entry.discard = password is None
        return password


def _restrict_context(context: SecurityContext, only: Condition) -> SecurityContext:
    return context if only == ALWAYS else replace(context, only=only)


def _make_token_verifier(app: Tidewheel) -> TokenVerifier | None:
    if app.settings.jwt_secret is None and app.settings.jwt_jwks_url is None:
        return None
    # Late: its libraries take longer to import than all of ours.
    from tidewheel.access.tokens import (
        TokenVerifier,
    )

    return TokenVerifier(app.settings, app.clock)


def _ability(caller: Caller, what: str, scope: Scope, in_scope: bool, rule: tuple[bool, str]) -> Ability:
    """``rule``: what the rule that decides says of this caller, for others than superusers."""
    if not in_scope:
        return Ability(what, False, f"needs the scope {scope}")
    return Ability(what, True, "superuser") if caller.superuser else Ability(what, *rule)


def _permission_error(caller: Caller, what: str, why: str) -> NotAuthenticated | NotPermitted:
    """Somebody who showed nothing may try again with something."""
    if caller.kind is CallerKind.ANONYMOUS:
        return NotAuthenticated("this needs an API key, a token or a session; none was shown")
    return NotPermitted(f"{caller.name} may not {what} ({why})")
