"""Whatever fails on a hook's way, a call that policy asks is asked, and one that it denies is denied.

A failure is put into each call of a function of ours that a hook leads to, one after the other (of
many steps, every few); the guard alone, which answers then, and what sends its answer are spared.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import pytest
from django.db import OperationalError, transaction

import coordinator
from coordinator.actions.people import keys
from coordinator.actions.policy import tool_rules
from coordinator.dialects.dialect_registry import DIALECTS
from coordinator.edge.app import ROUTES
from coordinator.edge.hooks import guard as call_guard
from coordinator.edge.hooks.endpoint import HookEndpoint, parse_hook_wait_seconds
from coordinator.edge.hooks.guard import HookGuard
from coordinator.edge.hooks.notes import PendingNotes
from coordinator.edge.hooks.pending_hooks import HookApprovalWaiter
from coordinator.edge.hooks.recorder import HookRecorder
from coordinator.edge.http.auth import Authenticator
from coordinator.edge.http.bodies import RequestBodies
from coordinator.edge.http.messages import OPERATION, ClientDisconnected
from coordinator.edge.policy import rulings
from coordinator.edge.policy.brake_gate import BrakeGate
from coordinator.edge.policy.policy_cache import PolicyCache
from coordinator.edge.policy.rulings import PolicyRulings
from coordinator.edge.polling.waits import LongPollWaiters
from coordinator.errors import RequestTooLarge, ServiceBusy, SignalboxError
from coordinator.feed.reader import FeedChange
from coordinator.identity.actors import Actor
from coordinator.models import McpServer, PermissionRequest
from coordinator.policy.rules import tool_rules as policy
from coordinator.policy.rules.tool_rules import DecisionRule
from tests.unbound import accept_unbound_keys

pytestmark = pytest.mark.django_db

ANN = Actor("user", "ann")
NOW = datetime(2026, 3, 1, tzinfo=UTC)
OURS = str(Path(coordinator.__file__).parent)
SPARED = {
    call_guard.__file__,
    str(Path(OURS) / "edge" / "http" / "messages.py"),
    # Where a savepoint fails, the test's transaction is lost.
    str(Path(OURS) / "engine" / "postgresql" / "base.py"),
    str(Path(OURS) / "engine" / "sqlite" / "base.py"),
}
EDIT = FeedChange(1, 0, "tool_rules", "1", None, "update")
FAILURES = (
    ServiceBusy("The database is busy."),
    OperationalError("database is locked"),
    RuntimeError("a fault of ours"),
    RecursionError(),
    TimeoutError(),
    ClientDisconnected(),
    RequestTooLarge("Nobody can judge that."),
    MemoryError(),
)
TRIED = 40  # steps of a hook's way that fail, one after the other
RULES = {
    "danger": DecisionRule(1, "Bash", "ask", "danger", wait_seconds=1),
    "never": DecisionRule(2, "Bash", "deny", "never"),
    "careful": DecisionRule(3, "Bash", "ask", "careful", deny_at_deadline=True),
}


class Inline:
    """Threads that are none: all runs in the test's thread, and so in its transaction, loop or no loop."""

    async def run_in_thread(self, work: Any, *args: Any, **kwargs: Any) -> Any:
        loop = asyncio.get_running_loop()
        asyncio._set_running_loop(None)
        try:
            with transaction.atomic():  # of its own, as in a thread: what fails is undone
                return work(*args, **kwargs)
        finally:
            asyncio._set_running_loop(loop)


class Writer:
    """A writer that writes at once."""

    async def perform_in_transaction(self, work: Any, **_how: Any) -> Any:
        return await Inline().run_in_thread(work)

    async def submit_events(self, items: Any, **_how: Any) -> list[Any]:
        return [None for _ in items]


class World:
    """The hook's door with all that stands behind it, but for the threads and the writer."""

    def __init__(self, agent: str) -> None:
        threads: Any = Inline()
        feed = SimpleNamespace(add_watcher=lambda: None, remove_watcher=lambda: None)
        hub: Any = SimpleNamespace(
            listeners=[], feed=feed, subscribe=lambda *_: None, unsubscribe=lambda *_: None
        )
        self.rulings = PolicyRulings(hub, PolicyCache(hub, threads), threads)
        writer: Any = Writer()
        waits = LongPollWaiters(hub, threads)
        asker = HookApprovalWaiter(waits, threads)
        recorder = HookRecorder(writer, DIALECTS[agent])
        door = HookEndpoint(
            Authenticator(threads),
            recorder,
            self.rulings,
            asker,
            RequestBodies(),
            gate=BrakeGate(waits, threads),
            notes=PendingNotes(hub, threads),
        )
        self.guard = HookGuard(door, self.rulings, parse_hook_wait_seconds)


class Steps:
    """Raises in the call number `at` of a function of ours; None: counts them."""

    def __init__(self, at: int | None = None) -> None:
        self.at = at
        self.taken = 0

    @contextmanager
    def traced(self) -> Iterator[None]:
        sys.settrace(self._called)
        try:
            yield
        finally:
            sys.settrace(None)

    def _called(self, frame: FrameType, event: str, _argument: Any) -> None:
        place = frame.f_code.co_filename
        if not place.startswith(OURS) or place in SPARED:
            return
        self.taken += 1
        if self.taken == self.at:
            failure = FAILURES[self.taken % len(FAILURES)]
            raise type(failure)(*failure.args)


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No log of a thousand failures, and none of them waits long for what cannot come."""
    monkeypatch.setattr(rulings, "READ_WITHIN", 0.05)
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture
def key() -> str:
    accept_unbound_keys()
    _row, raw = keys.issue_api_key(name="claude", scopes=["agent"], actor=ANN, now=NOW)
    return raw


def answer(
    key: str, steps: Steps, body: bytes, *, edited: bool = False, agent: str = "claude-code"
) -> str | None:
    """Post a hook while `steps` are counted; return the decision, None for no opinion or a refusal."""
    sent: list[Any] = []
    scope = {
        "type": "http",
        "method": "POST",
        "path": f"/hooks/{agent}",
        "query_string": b"wait=0.01",
        "headers": [(b"authorization", f"Bearer {key}".encode())],
        "client": ("127.0.0.1", 1),
        OPERATION: ROUTES["POST", "/hooks/([^/]+)"],
    }
    messages = iter([{"type": "http.request", "body": body}])

    async def receive() -> Any:
        for message in messages:
            return message
        return await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message)

    async def post() -> None:
        world = World(agent)
        await world.rulings.refresh_policy_rules()
        if edited:
            world.rulings.start_rules_reload_on_change([EDIT])
        with steps.traced():
            try:
                await world.guard.answer_hook_with_fallback(scope, receive, send)
            except (SignalboxError, ClientDisconnected, *map(type, FAILURES)):
                return

    asyncio.run(asyncio.wait_for(post(), 20))
    text = b"".join(message.get("body", b"") for message in sent)
    return json.loads(text)["hookSpecificOutput"]["permissionDecision"] if text else None


def hook(tool: str, **tool_input: Any) -> bytes:
    fields = {"session_id": "s", "hook_event_name": "PreToolUse", "tool_name": tool, "tool_input": tool_input}
    return json.dumps(fields | {"tool_use_id": "t1", "cwd": "/x"}).encode()


def lay_down(*rules: DecisionRule) -> None:
    tool_rules.replace_tool_rules(
        rules, seen_version=policy.digest_tool_rules(policy.load_saved_tool_rules()), actor=ANN, now=NOW
    )


def decisions(key: str, body: bytes, *, edited: bool = False, agent: str = "claude-code") -> set[str | None]:
    """Return what the hook is answered where each step in turn fails."""
    counting = Steps()
    answer(key, counting, body, edited=edited, agent=agent)
    assert counting.taken > 40, "the hook went no way"
    found = set()
    stride = max(1, counting.taken // TRIED)  # every step would take minutes; each case begins at another
    for at in itertools.count(1 + len(body) % stride, stride):
        PermissionRequest.objects.all().delete()
        steps = Steps(at)
        found.add(answer(key, steps, body, edited=edited, agent=agent))
        if steps.taken < at:
            return found
    raise AssertionError


@pytest.mark.parametrize("edited", [False, True], ids=["rules known", "rules edited meanwhile"])
@pytest.mark.parametrize(("word", "right"), [("danger", {"ask"}), ("careful", {"deny"}), ("never", {"deny"})])
def test_a_failure_at_any_step_leaves_no_call_without_an_answer(
    key: str, word: str, right: set[str], edited: bool
) -> None:
    lay_down(RULES[word])
    assert decisions(key, hook("Bash", command=word), edited=edited) == right


def test_an_agent_that_cannot_be_told_to_ask_is_denied_whatever_fails(key: str) -> None:
    lay_down(RULES["danger"])
    assert decisions(key, hook("Bash", command="danger"), agent="codex") == {"deny"}
    assert answer(key, Steps(), b'{"hook_event_name": "PreToolUse", ', agent="codex") == "deny"


def test_a_failure_at_any_step_opens_no_tool_that_is_not_granted(key: str) -> None:
    McpServer.objects.create(name="shopdb", command="x", args=[], default_policy="opt-in", created_at=NOW)
    assert decisions(key, hook("mcp__shopdb__drop")) == {"deny"}


def test_failures_disturb_nobody_where_nothing_is_laid_down(key: str) -> None:
    assert decisions(key, hook("Bash", command="danger")) == {None}


def test_where_the_guard_itself_fails_the_call_is_denied(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lay_down(RULES["danger"])

    def broken(*_args: Any) -> Any:
        raise RuntimeError

    monkeypatch.setattr(PolicyRulings, "judge_tool_call", broken)
    monkeypatch.setattr(PolicyRulings, "find_strictest_possible_ruling", broken)
    assert answer(key, Steps(), hook("Bash", command="ls")) == "deny"


def test_while_the_rules_were_never_read_every_call_is_asked(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable() -> Any:
        raise OperationalError("no such host")

    monkeypatch.setattr(policy, "load_saved_tool_rules", unreadable)
    assert answer(key, Steps(), hook("Bash", command="ls")) == "ask"


@pytest.mark.parametrize(
    "body",
    [
        b'{"hook_event_name": "PreToolUse", ',
        hook("Bash", command="ls")[:-3],
        b'{"session_id": "s", "hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": '
        + b'{"a":' * 100_000
        + b"1"
        + b"}" * 100_001,
        b'{"hook_event_name": "PreToolUse", "tool_name": "Bash"}',
        b'{"session_id": "s", "hook_event_name": "PreToolUse", "tool_name": 7}',
        b" " * (20 * 1024 * 1024 + 1),
    ],
    ids=["cut short", "cut at its end", "too deep", "of no session", "of no tool", "too large"],
)
def test_a_call_that_cannot_be_read_counts_as_the_worst_there_is_a_rule_for(key: str, body: bytes) -> None:
    lay_down(RULES["danger"])
    is_broken = len(body) < 2_000_000  # one that is too large can be sent again in part
    assert answer(key, Steps(), body) == ("deny" if is_broken else "ask")
    lay_down(RULES["danger"], RULES["never"])
    assert answer(key, Steps(), body) == "deny"
    lay_down(DecisionRule(1, "Bash", "observe"))
    assert answer(key, Steps(), body) is None


def test_what_cannot_be_read_and_says_that_it_is_no_call_is_refused_as_ever(key: str) -> None:
    lay_down(RULES["never"])
    assert answer(key, Steps(), b'{"hook_event_name": "PostToolUse", ') is None


def test_a_key_that_is_over_frees_no_call_and_a_stranger_learns_nothing(key: str) -> None:
    lay_down(RULES["danger"])
    row = keys.ApiKey.objects.get()
    keys.invalidate_api_key(row.pk, actor=ANN, now=NOW)
    assert answer(key, Steps(), hook("Bash", command="danger")) == "ask"
    assert answer(key, Steps(), hook("Bash", command="ls")) is None
    assert answer("sbx_unknown", Steps(), hook("Bash", command="danger")) is None
