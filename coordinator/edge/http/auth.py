"""Authentication at the endpoints that Django does not serve, by API keys and session cookies.

Results are cached for some seconds and dropped at once when the feed reports that a key or a user has changed.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar
from urllib.parse import parse_qs

from django.conf import settings
from django.contrib.auth import get_user
from django.db import DatabaseError, InterfaceError
from django.http import HttpRequest
from django.http.cookie import parse_cookie
from django.utils import timezone

from coordinator.actions.people import keys
from coordinator.api.auth import parse_api_key_or_none, require_local_caller, require_non_browser_request
from coordinator.edge.http.client_addresses import get_client_address_and_scheme, has_forwarding_headers
from coordinator.edge.http.messages import (
    Headers,
    get_edge_operation_of_request,
    get_request_headers,
    header_texts_by_name,
)
from coordinator.errors import Forbidden, SignalboxError, Unauthorized
from coordinator.feed.reader import FeedChange
from coordinator.identity.keys import LOCAL_PROGRAM, KeyEnded, KeyIdentity
from coordinator.identity.roles import highest_role_of_user
from coordinator.identity.scopes import SCOPES
from coordinator.identity.session_store import SessionStore
from coordinator.identity.viewers import Viewer
from coordinator.lib.asgi import Scope
from coordinator.lib.fair_queue import CALLER, ThreadsClosed
from coordinator.lib.threads import EdgeThreads

ANSWER_CACHE_SECONDS = 5.0  # a logout, which the feed does not report, takes effect within this time
MAX_CACHED_ANSWERS = 10_000
LONGEST_TIMER = 24 * 3600.0  # seconds; nothing is held open for longer
TOPICS = frozenset({"api_keys", "session_keys", "users"})

T = TypeVar("T")


class AuthenticationCache(Generic[T]):
    """Answers by a secret's hash, refusals too. One look at a time for each secret, however many ask."""

    def __init__(self) -> None:
        self._answers: dict[bytes, tuple[float, asyncio.Future[T]]] = {}

    def clear_cached_authentications(self) -> None:
        """Forget everything; looks under way are not kept either."""
        self._answers = {}

    async def get_or_authenticate(self, secret: str, authenticate: Callable[[], Awaitable[T]]) -> T:
        """Return the kept answer, or look; an expected refusal is raised again while it is kept."""
        cache_key = hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
        now = asyncio.get_running_loop().time()
        cached_answer = self._answers.get(cache_key)
        if (
            cached_answer is None
            or cached_answer[0] < now
            or (cached_answer[1].done() and has_unexpected_error(cached_answer[1]))
        ):
            if len(self._answers) >= MAX_CACHED_ANSWERS:
                self.clear_cached_authentications()
            cached_answer = (now + ANSWER_CACHE_SECONDS, asyncio.ensure_future(authenticate()))
            cached_answer[1].add_done_callback(
                has_unexpected_error
            )  # reads the exception: the asker may be gone by then
            self._answers[cache_key] = cached_answer
        return (
            cached_answer[1].result() if cached_answer[1].done() else await asyncio.shield(cached_answer[1])
        )


def has_unexpected_error(answer: asyncio.Future[T]) -> bool:
    if answer.cancelled():
        return True
    problem = answer.exception()
    return problem is not None and not isinstance(problem, SignalboxError)


class Authenticator:
    """Identifies callers. `generation` grows whenever earlier results may no longer be valid."""

    def __init__(self, threads: EdgeThreads) -> None:
        self.generation = 0
        self._threads = threads
        self._keys: AuthenticationCache[KeyIdentity] = AuthenticationCache()
        self._people: AuthenticationCache[Viewer] = AuthenticationCache()
        self._ids: AuthenticationCache[int | None] = AuthenticationCache()
        self._watchers: set[Callable[[], object]] = set()

    def clear_caches_on_identity_change(self, batch: Sequence[FeedChange]) -> None:
        """Forget everybody when a key or a user has changed."""
        if any(change.topic in TOPICS for change in batch):
            self.generation += 1
            self._keys.clear_cached_authentications()
            self._people.clear_cached_authentications()
            self._ids.clear_cached_authentications()
            for call in tuple(self._watchers):
                call()

    @contextlib.contextmanager
    def watch_identity_changes_during_block(self, call: Callable[[], object]) -> Iterator[None]:
        """Have `call` called inside this block whenever what was found out before may no longer hold."""
        self._watchers.add(call)
        try:
            yield
        finally:
            self._watchers.discard(call)

    def clear_cached_api_keys(self) -> None:
        """Look every key up again when it is next used."""
        self._keys.clear_cached_authentications()

    async def authenticate_api_key_caller(
        self, scope: Scope, headers: Headers, *scopes: str, in_query: bool = False
    ) -> KeyIdentity:
        """Return the calling program, which needs one of `scopes`. Raises Unauthorized or Forbidden.

        `in_query` also takes the key as `?api_key=`, for EventSource, which cannot send headers.
        """
        if not settings.API_AUTH:
            plain_headers = header_texts_by_name(headers)
            require_local_caller(plain_headers.get("host", ""), plain_headers, has_forwarding_headers(scope))
            return LOCAL_PROGRAM
        raw = parse_api_key_or_none(
            find_header_text(headers, b"authorization"), find_header_text(headers, b"x-api-key")
        )
        if raw is None and in_query:
            query = parse_qs(scope["query_string"].decode("latin-1"))
            raw = query.get("api_key", [""])[-1] or None
        if raw is None:
            raise Unauthorized(
                "An API key is needed: send it as `Authorization: Bearer sbx_…` or `X-API-Key`."
            )
        key = raw
        source = get_client_address_and_scheme(scope).address
        identity = await self._keys.get_or_authenticate(
            key, lambda: self._threads.run_in_thread(require_api_key_in_database, key, source)
        )
        if identity.expires_at is not None and identity.expires_at <= timezone.now():
            raise KeyEnded("This API key has expired.")
        CALLER.set(f"key:{identity.id}")
        if not identity.scopes & set(scopes):
            await self._threads.run_in_thread(
                record_out_of_scope_call, identity, scopes, f"{scope['method']} {scope['path']}"
            )
        identity.require_any_scope(scopes)
        return identity

    async def admit_api_key_caller(self, scope: Scope, headers: Headers) -> Admission:
        """Let a program in with a scope of the operation, for as long as it is pending.

        Raises as `authenticate_api_key_caller`.

        Where no key is asked for, no browser is let in: what is held may do something, such as claim a run.
        """
        if not settings.API_AUTH:
            require_non_browser_request(header_texts_by_name(headers))
        scopes = get_edge_operation_of_request(scope).scopes
        ask = functools.partial(self.authenticate_api_key_caller, scope, headers, *scopes)
        generation = self.generation
        return Admission(self, await ask(), ask, generation)

    async def admit_api_key_stream_reader(self, scope: Scope, headers: Headers) -> Admission:
        """Let a program in that listens to a stream; its key may be in the query. Raises as `admit_api_key_caller`."""
        scopes = get_edge_operation_of_request(scope).scopes
        ask = functools.partial(self.authenticate_api_key_caller, scope, headers, *scopes, in_query=True)
        generation = self.generation
        return Admission(self, await ask(), ask, generation)

    async def identify_authenticated_sender(self, scope: Scope) -> str | None:
        """Return who sends a request to any endpoint, proven by cookie or key: `person:2`, `key:1`; None for nobody.

        Raises what a key that is no good is refused for.
        """
        headers = get_request_headers(scope)
        with contextlib.suppress(Unauthorized, Forbidden):
            return f"person:{(await self.require_viewer_by_session_cookie(headers)).user_id}"
        offered = parse_api_key_or_none(
            find_header_text(headers, b"authorization"), find_header_text(headers, b"x-api-key")
        )
        if settings.API_AUTH and offered is None:
            return None
        return f"key:{(await self.authenticate_api_key_caller(scope, headers, *SCOPES)).id}"

    async def require_viewer_by_session_cookie(self, headers: Headers) -> Viewer:
        """Return the person whose session cookie came along. Raises Unauthorized or Forbidden."""
        cookies = parse_cookie(find_header_text(headers, b"cookie") or "")
        session_key = cookies.get(settings.SESSION_COOKIE_NAME)
        if not session_key or "\x00" in session_key:
            raise Unauthorized("Sign in first.")
        viewer = await self._people.get_or_authenticate(
            session_key, lambda: self._threads.run_in_thread(require_viewer_of_login_session, session_key)
        )
        CALLER.set(f"person:{viewer.user_id}")
        return viewer

    async def set_caller_context_variable(self, scope: Scope) -> None:
        """Set CALLER to the sender of a request, where it can be identified, without refusing any request.

        A sender without valid credentials stays an address, which the endpoint refuses. So does one that cannot be
        looked up because the database is away or this process stops: Django, or the bridge, reports that.
        """
        headers = get_request_headers(scope)
        with contextlib.suppress(SignalboxError, DatabaseError, InterfaceError, ThreadsClosed):
            raw = parse_api_key_or_none(
                find_header_text(headers, b"authorization"), find_header_text(headers, b"x-api-key")
            )
            if raw is None:
                await self.require_viewer_by_session_cookie(headers)
            elif key_id := await self._ids.get_or_authenticate(
                raw, lambda: self._threads.run_in_thread(keys.find_api_key_id, raw)
            ):
                CALLER.set(f"key:{key_id}")


@dataclass(slots=True)
class Admission:
    """An authenticated program that waits; `still_allowed` raises once its key is no longer valid.

    It checks again only after the feed reported a changed key or user, so waiting costs nothing.
    """

    auth: Authenticator
    caller: KeyIdentity
    ask: Callable[[], Awaitable[KeyIdentity]]
    generation: int

    async def require_still_allowed(self) -> None:
        """Raise Unauthorized or Forbidden where the key was revoked or has expired meanwhile."""
        generation, until = self.auth.generation, self.caller.expires_at
        if generation != self.generation or (until is not None and until <= timezone.now()):
            await self.ask()
            self.generation = generation

    async def require_key_valid_in_database(self) -> None:
        """Raise Unauthorized or Forbidden where the key is not valid in the database now."""
        self.auth.clear_cached_api_keys()
        await self.ask()

    @contextlib.contextmanager
    def watch_key_revocation_during_block(self, end: Callable[[], object]) -> Iterator[None]:
        """Have `end` called inside this block as soon as the key is revoked or expires: for what is held open."""
        looks: set[asyncio.Task[None]] = set()

        async def check_key() -> None:
            with contextlib.suppress(DatabaseError):  # asked again with the next change
                try:
                    await self.require_still_allowed()
                except (Unauthorized, Forbidden):
                    end()

        def schedule_key_check() -> None:
            task = asyncio.ensure_future(check_key())
            looks.add(task)
            task.add_done_callback(looks.discard)

        until, timer = self.caller.expires_at, None
        if until is not None:
            remaining_seconds = (until - timezone.now()).total_seconds()
            timer = asyncio.get_running_loop().call_later(
                min(max(remaining_seconds, 0.0), LONGEST_TIMER), schedule_key_check
            )
        with self.auth.watch_identity_changes_during_block(schedule_key_check):
            try:
                yield
            finally:
                if timer is not None:
                    timer.cancel()
                for task in looks:
                    task.cancel()


def find_header_text(headers: Headers, name: bytes) -> str | None:
    value = headers.get(name)
    return None if value is None else value.decode("latin-1")


def require_api_key_in_database(raw: str, source: str) -> KeyIdentity:
    return keys.authenticate_api_key(raw, timezone.now(), source=source)


def record_out_of_scope_call(identity: KeyIdentity, wanted_scopes: tuple[str, ...], attempt: str) -> None:
    keys.record_out_of_scope_use(identity, wanted_scopes, attempt, timezone.now())


def require_viewer_of_login_session(session_key: str) -> Viewer:
    request = HttpRequest()
    request.session = SessionStore(session_key)
    user = get_user(request)
    if not user.is_authenticated or user.pk is None:
        raise Unauthorized("Sign in first.")
    role = highest_role_of_user(user)
    if role is None:
        raise Forbidden("Your account has no role yet. Ask an admin for one.")
    return Viewer(int(user.pk), user.get_username(), role)
