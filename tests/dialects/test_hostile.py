"""Whatever is posted as a hook, no agent's dialect breaks over it, and no call slips through because of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from coordinator.dialects.dialect_base import Dialect
from coordinator.dialects.dialect_registry import DIALECTS
from coordinator.errors import UnprocessableRequest
from coordinator.lib import json_bounds
from coordinator.policy.rules.tool_rules import ASK, DENY, Ruling
from tests.dialects.payloads import FIELDS, PAYLOADS
from tests.served import Served

AT = "2026-11-22T01:09:22.000000+00:00"
every_agent = pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
ODD: list[Any] = [
    None, True, 0, -1, 1e308, 2**70, "", " ", "\x00", "\ud800", "\ud800x\udfff", "x" * 100_000, [], {}, [[]],
    {"": ""}, {"a": {"b": [None, {"c": "\udc00"}]}}, ["x", 1, None], [{"type": "text", "text": 5}],
]  # fmt: skip


def odd_ones(payload: dict[str, Any]) -> list[bytes]:
    """Return the payload with each of its fields, at any depth, as each odd value, and without it."""
    found = [json.dumps(changed).encode() for changed in _changed(payload)]
    return [
        *found,
        b"",
        b"\xff",
        b"[]",
        b"null",
        b'"x"',
        b"{",
        b'{"a":' * 50 + b"1" + b"}" * 50,
        b"[" * 10000,
    ]


def _changed(value: Any) -> list[Any]:
    found: list[Any] = []
    if isinstance(value, dict):
        for name in value:
            found.append({key: item for key, item in value.items() if key != name})
            found += [value | {name: odd} for odd in ODD]
            found += [value | {name: changed} for changed in _changed(value[name])]
    return found


@every_agent
def test_an_odd_payload_is_refused_or_makes_events_and_never_lets_its_call_go(dialect: Dialect) -> None:
    for payload in PAYLOADS[dialect.name]:
        for body in odd_ones(payload):
            try:
                hook = dialect.read_hook(body, AT)
            except UnprocessableRequest:
                assert (
                    dialect.guess_call_hook_name(body) is None
                    or dialect.guess_call_hook_name(body) in dialect.calls
                )
                continue
            for event in dialect.build_hook_and_transcript_events(hook, "ses_1"):
                assert isinstance(event.timestamp, str)
                assert event.tool_input is None or isinstance(event.tool_input, dict)
                json.dumps(event.extra).encode()
            if dialect.is_call_hook(hook):
                call = dialect.build_tool_call_request(hook, "ses_1", None)
                assert isinstance(call.about, str)
                denied = dialect.build_ruling_reply(hook, Ruling(DENY, "Never.", "rule 1"))
                assert denied is not None
                assert denied.denial is not None
                asked = dialect.build_undecided_call_reply(
                    hook.name, Ruling(ASK, "", "rule 1", deny_at_deadline=True), ""
                )
                assert asked is not None
                assert asked.denial is not None


@every_agent
def test_a_hook_of_a_call_that_was_cut_short_counts_as_one(dialect: Dialect) -> None:
    for payload in PAYLOADS[dialect.name]:
        hook = dialect.read_hook(json.dumps(payload).encode(), AT)
        body = json.dumps(payload).encode()
        if hook.name in dialect.calls:
            assert all(dialect.guess_call_hook_name(body[:length]) for length in range(len(body)))


@pytest.mark.served
@every_agent
def test_the_door_answers_odd_hooks_without_an_error_of_its_own(served: Served, dialect: Dialect) -> None:
    http = served.client("agent")
    deep = b'{"a":' * (json_bounds.DEEPEST + 5) + b"1" + b"}" * (json_bounds.DEEPEST + 5)
    for payload in PAYLOADS[dialect.name]:
        bodies = [json.dumps(_as(payload, name, odd)).encode() for name in FIELDS for odd in ODD[:16:3]]
        for body in [*dict.fromkeys(bodies), deep, b"\xff{", json.dumps(payload).encode()[:-3]]:
            answer = http.post(f"/hooks/{dialect.name}", params={"wait": 0}, content=body)
            assert answer.status_code in {200, 413, 422}, (body[:200], answer.text)


def _as(payload: dict[str, Any], name: str, odd: Any) -> dict[str, Any]:
    """Return the payload with a value of this name, wherever it stands, as an odd one."""
    changed = {
        key: _as(value, name, odd) if isinstance(value, dict) else value for key, value in payload.items()
    }
    return changed | ({name: odd} if name in changed else {})
