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

from coordinator.actions.sessions import sessions
from coordinator.errors import SignalboxError
from coordinator.identity.actors import Actor
from coordinator.models import Change, Event, Session
from coordinator.operations.doctor import StepResult
from coordinator.usage import reading as usage

T = TypeVar("T")

STEP_SECONDS = 5.0  # seconds for each step
TRIAL_AGENT = "signalbox-doctor"  # whom the trial's key is bound to: no agent of anybody's
HOOK_PATH, TELEMETRY_PATH = "/hooks/claude-code", "/v1/logs"


def iterate_claude_code_trial_steps(url: str, key: str, *, actor: Actor) -> Iterator[StepResult]:
    """Try each hop between Claude Code and the browser against the server at `url`; stop at the first that fails.

    What the trial leaves behind is removed again.
    """
    url, claude_id = url.rstrip("/"), f"doctor-{uuid.uuid4()}"
    steps: list[tuple[str, Callable[[], str]]] = [
        (f"Reach {url}", lambda: request_and_describe_server_status(f"{url}/health")),
        (
            "Post a hook with the key",
            lambda: post_trial_hook_and_describe_answer(
                url, key, claude_id, "UserPromptSubmit", prompt="A trial."
            ),
        ),
        ("Find it written as an event", lambda: wait_for_trial_event_and_describe(claude_id)),
        ("Find it in the feed for open pages", lambda: wait_for_trial_in_feed(claude_id)),
        (
            "Ask what policy decides about a call",
            lambda: request_and_describe_trial_decision(url, key, claude_id),
        ),
        ("Send tokens as telemetry", lambda: send_trial_usage_and_describe_total(url, key, claude_id)),
    ]
    try:
        for step, work in steps:
            finding = run_trial_step(step, work)
            yield finding
            if not finding.works:
                return
    finally:
        delete_trial_sessions(claude_id, actor)


def run_trial_step(step: str, work: Callable[[], str]) -> StepResult:
    started_at = time.perf_counter()
    try:
        message, works = work(), True
    except (TrialStepFailed, OSError, SignalboxError) as problem:
        message, works = str(problem), False
    return StepResult(step, works, message, (time.perf_counter() - started_at) * 1000)


class TrialStepFailed(Exception):
    """A step that did not work, in words."""


def request_and_describe_server_status(address: str) -> str:
    return f"HTTP {send_request_or_fail_step(urllib.request.Request(address))[0]}"  # noqa: S310 - the operator's own address


def post_trial_hook_and_describe_answer(
    url: str, key: str, claude_id: str, hook: str, **fields: object
) -> str:
    return (
        send_trial_hook(url, key, claude_id, hook, **fields)
        or "Answered with an empty body: Claude Code goes on."
    )


def send_trial_hook(url: str, key: str, claude_id: str, hook: str, **fields: object) -> str:
    body = {"session_id": claude_id, "hook_event_name": hook, "cwd": "/", **fields}
    return post_trial_json(url + HOOK_PATH, key, body)


def post_trial_json(address: str, key: str, body: object) -> str:
    request = urllib.request.Request(  # noqa: S310 - the operator's own address
        address,
        data=json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {key}", "Content-Type": "application/json"},
    )
    return send_request_or_fail_step(request)[1]


def send_request_or_fail_step(request: urllib.request.Request) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(request, timeout=STEP_SECONDS) as answer:  # noqa: S310 - likewise
            return answer.status, answer.read(100_000).decode("utf-8", "replace")
    except urllib.error.HTTPError as refusal:
        detail = refusal.read(2_000).decode("utf-8", "replace")
        with suppress(ValueError, AttributeError):
            body = json.loads(detail)
            detail = body.get("detail") or body.get("message") or detail
        raise TrialStepFailed(f"HTTP {refusal.code}: {detail}") from None
    except urllib.error.URLError as problem:
        raise TrialStepFailed(
            f"No server answers there: {problem.reason}. Check the address, and that the server runs."
        ) from None


def wait_for_trial_event_and_describe(claude_id: str) -> str:
    trial_event = poll_for_result(
        lambda: Event.objects.filter(session__executor_session_id=claude_id).first()
    )
    if trial_event is None:
        raise TrialStepFailed(
            "The server accepted it, but it is not in this database. Check that both use the same DATABASE_URL."
        )
    return f"Event {trial_event.pk} of session {trial_event.session_id}"


def wait_for_trial_in_feed(claude_id: str) -> str:
    session_id = Session.objects.filter(executor_session_id=claude_id).values_list("pk", flat=True)[:1]
    if poll_for_result(lambda: Change.objects.filter(topic="events", parent__in=session_id).first()) is None:
        raise TrialStepFailed(
            "The feed did not report it. Run `signalbox manage migrate` to restore its triggers."
        )
    return "Open pages are updated."


def request_and_describe_trial_decision(url: str, key: str, claude_id: str) -> str:
    call = {"tool_name": "SignalboxDoctor", "tool_input": {"command": "true"}, "tool_use_id": claude_id}
    answer = send_trial_hook(url, key, claude_id, "PreToolUse", **call)
    if not answer:
        return "No rule applies: Claude Code decides by itself."
    hook_specific_output = json.loads(answer).get("hookSpecificOutput", {})
    return f"{hook_specific_output.get('permissionDecision')}: {hook_specific_output.get('permissionDecisionReason')}"


def send_trial_usage_and_describe_total(url: str, key: str, claude_id: str) -> str:
    record = {"event.name": "api_request", "session.id": claude_id, "model": "a-trial"}
    tokens = {"input_tokens": 3, "output_tokens": 4}
    attributes = [{"key": name, "value": {"stringValue": text}} for name, text in record.items()]
    attributes += [{"key": name, "value": {"intValue": str(number)}} for name, number in tokens.items()]
    scope = {"logRecords": [{"attributes": attributes}]}
    post_trial_json(url + TELEMETRY_PATH, key, {"resourceLogs": [{"scopeLogs": [scope]}]})
    session = Session.objects.filter(executor_session_id=claude_id).first()
    spent = (
        poll_for_result(lambda: usage.load_usage_by_session([session.pk]).get(session.pk))
        if session
        else None
    )
    if spent is None:
        raise TrialStepFailed("The server accepted it, but the test session has no tokens.")
    return f"{spent.total_tokens} tokens in the test session."


def poll_for_result(find_result: Callable[[], T | None]) -> T | None:
    deadline = time.monotonic() + STEP_SECONDS
    while (poll_result := find_result()) is None and time.monotonic() < deadline:
        time.sleep(0.02)
    return poll_result


def delete_trial_sessions(claude_id: str, actor: Actor) -> None:
    for session in Session.objects.filter(executor_session_id=claude_id):
        with suppress(SignalboxError):
            sessions.remove_session(session.session_id, actor=actor, now=timezone.now())
