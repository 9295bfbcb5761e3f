"""Sends hooks as Claude Code would, over HTTP, and follows them to where people see them."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TypeVar

from django.utils import timezone

from coordinator.actions import sessions
from coordinator.errors import SignalboxError
from coordinator.identity.actors import Actor
from coordinator.models import Change, Event, Session
from coordinator.operations.doctor import Finding
from coordinator.sessions import usage

T = TypeVar("T")

STEP_SECONDS = 5.0  # seconds for each step
TRIAL_AGENT = "signalbox-doctor"  # whom the trial's key is bound to: no agent of anybody's
DOOR, TELEMETRY = "/hooks/claude-code", "/v1/logs"


def examine(url: str, key: str, *, by: Actor) -> Iterator[Finding]:
    """Try each hop between Claude Code and the browser against the server at `url`; stop at the first that fails.

    What the trial leaves behind is removed again.
    """
    url, claude_id = url.rstrip("/"), f"doctor-{uuid.uuid4()}"
    steps: list[tuple[str, Callable[[], str]]] = [
        (f"Reach {url}", lambda: _reach(f"{url}/health")),
        (
            "Post a hook with the key",
            lambda: _post(url, key, claude_id, "UserPromptSubmit", prompt="A trial."),
        ),
        ("Find it written as an event", lambda: _written(claude_id)),
        ("Find it in the feed for open pages", lambda: _feed_reports_it(claude_id)),
        ("Ask what policy decides about a call", lambda: _ruling(url, key, claude_id)),
        ("Send tokens as telemetry", lambda: _tokens(url, key, claude_id)),
    ]
    try:
        for step, work in steps:
            finding = _try(step, work)
            yield finding
            if not finding.works:
                return
    finally:
        _clean_up(claude_id, by)


def _try(step: str, work: Callable[[], str]) -> Finding:
    began = time.perf_counter()
    try:
        message, works = work(), True
    except (_Problem, OSError, SignalboxError) as problem:
        message, works = str(problem), False
    return Finding(step, works, message, (time.perf_counter() - began) * 1000)


class _Problem(Exception):
    """A step that did not work, in words."""


def _reach(address: str) -> str:
    return f"HTTP {_send(urllib.request.Request(address))[0]}"  # noqa: S310 - the operator's own address


def _post(url: str, key: str, claude_id: str, hook: str, **fields: object) -> str:
    return _hook(url, key, claude_id, hook, **fields) or "Answered with an empty body: Claude Code goes on."


def _hook(url: str, key: str, claude_id: str, hook: str, **fields: object) -> str:
    body = {"session_id": claude_id, "hook_event_name": hook, "cwd": "/", **fields}
    return _send_json(url + DOOR, key, body)


def _send_json(address: str, key: str, body: object) -> str:
    request = urllib.request.Request(  # noqa: S310 - the operator's own address
        address,
        data=json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {key}", "Content-Type": "application/json"},
    )
    return _send(request)[1]


def _send(request: urllib.request.Request) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(request, timeout=STEP_SECONDS) as answer:  # noqa: S310 - likewise
            return answer.status, answer.read(100_000).decode("utf-8", "replace")
    except urllib.error.HTTPError as refusal:
        words = refusal.read(2_000).decode("utf-8", "replace")
        with suppress(ValueError, AttributeError):
            body = json.loads(words)
            words = body.get("detail") or body.get("message") or words
        raise _Problem(f"HTTP {refusal.code}: {words}") from None
    except urllib.error.URLError as problem:
        raise _Problem(
            f"No server answers there: {problem.reason}. Check the address, and that the server runs."
        ) from None


def _written(claude_id: str) -> str:
    found = _soon(lambda: Event.objects.filter(session__executor_session_id=claude_id).first())
    if found is None:
        raise _Problem(
            "The server accepted it, but it is not in this database. Check that both use the same DATABASE_URL."
        )
    return f"Event {found.pk} of session {found.session_id}"


def _feed_reports_it(claude_id: str) -> str:
    session_id = Session.objects.filter(executor_session_id=claude_id).values_list("pk", flat=True)[:1]
    if _soon(lambda: Change.objects.filter(topic="events", parent__in=session_id).first()) is None:
        raise _Problem("The feed did not report it. Run `manage.py migrate` to restore its triggers.")
    return "Open pages are updated."


def _ruling(url: str, key: str, claude_id: str) -> str:
    call = {"tool_name": "SignalboxDoctor", "tool_input": {"command": "true"}, "tool_use_id": claude_id}
    answer = _hook(url, key, claude_id, "PreToolUse", **call)
    if not answer:
        return "No rule applies: Claude Code decides by itself."
    found = json.loads(answer).get("hookSpecificOutput", {})
    return f"{found.get('permissionDecision')}: {found.get('permissionDecisionReason')}"


def _tokens(url: str, key: str, claude_id: str) -> str:
    record = {"event.name": "api_request", "session.id": claude_id, "model": "a-trial"}
    tokens = {"input_tokens": 3, "output_tokens": 4}
    attributes = [{"key": name, "value": {"stringValue": text}} for name, text in record.items()]
    attributes += [{"key": name, "value": {"intValue": str(number)}} for name, number in tokens.items()]
    scope = {"logRecords": [{"attributes": attributes}]}
    _send_json(url + TELEMETRY, key, {"resourceLogs": [{"scopeLogs": [scope]}]})
    session = Session.objects.filter(executor_session_id=claude_id).first()
    spent = _soon(lambda: usage.of_sessions([session.pk]).get(session.pk)) if session else None
    if spent is None:
        raise _Problem("The server accepted it, but the test session has no tokens.")
    return f"{spent.tokens} tokens in the test session."


def _soon(look: Callable[[], T | None]) -> T | None:
    deadline = time.monotonic() + STEP_SECONDS
    while (found := look()) is None and time.monotonic() < deadline:
        time.sleep(0.02)
    return found


def _clean_up(claude_id: str, by: Actor) -> None:
    for session in Session.objects.filter(executor_session_id=claude_id):
        with suppress(SignalboxError):
            sessions.delete(session.session_id, by=by, now=timezone.now())
