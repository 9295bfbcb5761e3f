"""An administrator tries a tool on its page: as policy, limits and the audit log have it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.gateway.agents import KEY, LONG_AGO, Wire, rule
from tests.gateway.example_server import Example
from tests.gateway.test_call_limits import LIMITS, TOKEN, limit
from tests.patience import until
from tests.served import Served

pytestmark = pytest.mark.served
CLEARED = ("brakes", *LIMITS)


@pytest.fixture(autouse=True)
def cleared(served: Served) -> Iterator[None]:
    served.emptied(*CLEARED)
    yield
    served.emptied(*CLEARED)


@pytest.fixture(autouse=True)
def known_tools(box: Served) -> None:
    wire = Wire(box)
    wire.initialize()
    wire.ask("tools/list")


def attempt(
    client: httpx.Client,
    tool: str,
    arguments: dict[str, Any],
    *,
    seen: str | None = None,
    confirmed: str = "on",
) -> httpx.Response:
    """Try a tool with arguments in JSON."""
    path = f"/ui/mcp/tool/try/?server=example&tool={tool}&as=json"
    shown = re.search(r'name="seen" value="([^"]*)"', client.get(path).text)
    data = {
        "arguments": json.dumps(arguments),
        "seen": seen if seen is not None else shown[1] if shown else "",
        "confirmed": confirmed,
    }
    return client.post(path, data=data)


def audited(box: Served, event: str) -> list[tuple[Any, ...]]:
    return box.sql(
        "SELECT actor_id, target_id, result, reason, metadata FROM audit_logs WHERE event_type = ? ORDER BY id DESC",
        (event,),
    )


def test_a_call_runs_and_is_shown_and_audited(box: Served, example: Example) -> None:
    page = attempt(box.sign_in("admin"), "echo", {"text": "hello"})
    assert page.status_code == 200
    assert "Succeeded" in page.text
    assert "echo: hello" in page.text
    assert example.calls == {"echo hello": 1}
    actor, target, result, _, metadata = audited(box, "MCP_TOOL_TRIED")[0]
    assert (actor, target, result) == ("user:admin", "example echo", "allowed")
    assert json.loads(metadata)["arguments"] == {"text": "hello"}
    actor, _, result, _, metadata = audited(box, "MCP_TOOL_TRIAL_ENDED")[0]
    assert (actor, result, json.loads(metadata)["outcome"]) == ("user:admin", "success", "ok")


def test_nobody_but_an_administrator_tries_a_tool(box: Served, example: Example) -> None:
    for name in ("viewer", "approver"):
        assert attempt(box.sign_in(name), "echo", {"text": "no"}).status_code == 403
    path = "/ui/mcp/tool/try/?server=example&tool=echo"
    for client in (box.client("all"), Wire(box, key=KEY).http):
        answer = client.post(path, data={"arguments": "{}", "confirmed": "on"})
        assert answer.status_code in {302, 401, 403}
    assert not example.calls


def test_a_tool_that_may_change_something_is_confirmed_first(box: Served, example: Example) -> None:
    page = attempt(box.sign_in("admin"), "zap", {}, confirmed="")
    assert page.status_code == 422
    assert "Confirm that the tool may change or delete something." in page.text
    assert not example.calls


def test_a_brake_on_everything_stops_it(box: Served, example: Example) -> None:
    box.sql(
        "INSERT INTO brakes (reach, name, reason, set_by, set_at) VALUES ('everything', '', 'fire', 'user:x', ?)",
        (LONG_AGO,),
    )
    page = attempt(box.sign_in("admin"), "echo", {"text": "braked"})
    assert page.status_code == 422
    assert "put the brake on everything: fire" in page.text
    assert not example.calls
    assert audited(box, "MCP_TOOL_TRIED")[0][2] == "denied"


def test_a_rule_that_denies_the_tool_refuses_it_and_one_that_asks_does_not(
    box: Served, example: Example
) -> None:
    rule(box, "mcp__example__echo", "deny", pattern="secret")
    rule(box, "mcp__example__*", "ask")
    admin = box.sign_in("admin")
    page = attempt(admin, "echo", {"text": "secret"})
    assert page.status_code == 422
    assert "Denied" in page.text
    assert "secret" in page.text, "what was typed is kept"
    assert not example.calls
    assert attempt(admin, "echo", {"text": "open"}).status_code == 200
    assert example.calls == {"echo open": 1}


def test_a_definition_that_changed_since_the_page_was_shown_is_not_called(
    box: Served, example: Example
) -> None:
    page = attempt(box.sign_in("admin"), "echo", {"text": "old"}, seen="0" * 64)
    assert page.status_code == 409
    assert "definition changed meanwhile" in page.text
    assert not example.calls


def test_secrets_in_results_are_masked_where_the_tools_limits_say_so(box: Served) -> None:
    limit(box, tool="echo", masks="yes")
    admin = box.sign_in("admin")

    def find_result() -> str:
        page = attempt(admin, "echo", {"text": f"see {TOKEN} there"}).text
        return page.partition('id="result"')[2].partition("</section>")[0]

    until(lambda: "there" in (result := find_result()) and TOKEN not in result)


def test_rates_and_the_time_of_the_tool_hold(box: Served, example: Example) -> None:
    admin = box.sign_in("admin")
    limit(box, tool="slow", call_seconds=1)
    until(lambda: "did not answer within 1 second" in attempt(admin, "slow", {"path": "a"}).text)
    assert audited(box, "MCP_TOOL_TRIAL_ENDED")[0][2] == "failure"
    limit(box, tool="echo", calls_per_minute=1)
    until(lambda: "may get 1 calls of echo a minute" in attempt(admin, "echo", {"text": "a"}).text)


def test_failures_open_the_circuit_breaker_and_it_refuses_trials(box: Served) -> None:
    admin = box.sign_in("admin")
    limit(box, breaker_failures=1, breaker_seconds=600)
    box.sql("UPDATE mcp_upstreams SET url = 'http://127.0.0.1:9/mcp' WHERE server_id = 'example'")
    until(lambda: "gets no calls for" in attempt(admin, "echo", {"text": "a"}).text)
