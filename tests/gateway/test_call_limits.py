"""Limits of calls that an administrator sets on a page hold for real servers over HTTP, and say what they did."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.gateway import rude_server
from tests.gateway.agents import AGENT, OTHER_KEY, GatewayRefused, Wire, furnish, grant, rule, text_of
from tests.gateway.conftest import TABLES
from tests.gateway.example_server import Example
from tests.gateway.rude_server import RudeServer
from tests.gateway.test_held_calls import InBackground, decide, pending
from tests.patience import until
from tests.served import Served, Template, running

pytestmark = pytest.mark.served
LIMITS = ("mcp_call_limits", "mcp_call_rates", "mcp_circuit_breakers", "mcp_stored_results")
TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


@pytest.fixture(autouse=True)
def no_limits(served: Served) -> Iterator[None]:
    served.emptied(*LIMITS)
    yield
    served.emptied(*LIMITS)


@pytest.fixture(autouse=True)
def known_tools(request: pytest.FixtureRequest) -> None:
    """Have the tools listed once, so that they have pages."""
    if "box" in request.fixturenames:
        began(request.getfixturevalue("box")).ask("tools/list")


def limit(box: Served, server: str = "example", tool: str = "", **fields: str | int) -> str:
    """Set limits as an administrator does on the page; return the page."""
    data = {"server": server, "tool": tool} | {name: str(value) for name, value in fields.items()}
    page = box.sign_in("admin").post("/ui/mcp/limits/save/", data=data)
    assert page.status_code == 200
    return page.text


def began(box: Served, **options: Any) -> Wire:
    wire = Wire(box, **options)
    if not wire.stateless:
        wire.initialize()
    return wire


def becomes(call: Callable[[], dict[str, Any]], holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Return the first result that `holds`: a worker reads new limits as soon as it hears of them."""

    def look() -> list[dict[str, Any]]:
        result = call()
        return [result] if holds(result) else []

    (result,) = until(look)
    return result


def links(result: dict[str, Any]) -> list[str]:
    return [block["uri"] for block in result["content"] if block["type"] == "resource_link"]


def read_all(wire: Wire, uri: str) -> str:
    """Read a stored result to its end, part by part."""
    text = ""
    while uri:
        part, *more = wire.ask("resources/read", {"uri": uri})["contents"]
        text += part["text"]
        uri = more[0]["uri"] if more else ""
    return text


@pytest.mark.parametrize("stateless", [False, True])
@pytest.mark.parametrize("server", ["example", ""])
def test_a_long_result_is_cut_and_its_rest_is_read_part_by_part(
    box: Served, server: str, stateless: bool
) -> None:
    assert "Saved." in limit(box, tool="echo", result_kib=4)
    wire = began(box, server=server, stateless=stateless)
    name = "echo" if server else "example__echo"
    sent = "".join(f"line {number} ä\n" for number in range(2_000))
    result = becomes(lambda: wire.call(name, text=sent), lambda result: bool(links(result)))
    head = result["content"][0]["text"]
    assert len(str(result).encode()) < 4_600
    assert head + read_all(wire, links(result)[0]) == f"echo: {sent}"
    assert text_of(wire.call(name, text="short")) == "echo: short"


def test_the_rest_is_read_by_the_key_and_agent_that_called_and_not_while_its_tool_is_denied(
    box: Served,
) -> None:
    limit(box, result_kib=2)
    wire = began(box)
    result = becomes(lambda: wire.call("echo", text="x" * 9_000), lambda result: bool(links(result)))
    (uri,) = links(result)
    other = began(box, key=OTHER_KEY)
    for uri_of_none in (uri, "signalbox://results/0/0"):
        refused = other.response(other.send("resources/read", {"uri": uri_of_none}))
        assert "You have no such stored result" in refused["error"]["message"]
    assert read_all(wire, uri)
    grant(box, AGENT, "echo", "deny")
    denied = until(
        lambda: [
            answer
            for answer in [wire.response(wire.send("resources/read", {"uri": uri}))]
            if "error" in answer
        ]
    )
    assert denied[0]["error"]["code"] == -32012


def test_the_rest_is_not_read_once_its_day_is_over(box: Served) -> None:
    limit(box, result_kib=2)
    wire = began(box)
    result = becomes(lambda: wire.call("echo", text="x" * 9_000), lambda result: bool(links(result)))
    box.sql("UPDATE mcp_stored_results SET expires_at = '2026-01-01T00:00:00.000000Z'")
    answer = wire.response(wire.send("resources/read", {"uri": links(result)[0]}))
    assert "You have no such stored result" in answer["error"]["message"]


def test_secrets_in_results_are_masked_where_the_tool_says_so(box: Served) -> None:
    limit(box, tool="echo", masks="yes")
    wire = began(box)
    result = becomes(
        lambda: wire.call("echo", text=f"token {TOKEN}"), lambda result: TOKEN not in str(result)
    )
    assert "[masked: " in text_of(result)
    assert TOKEN in text_of(wire.call("write", path=TOKEN))


def test_an_approved_call_has_the_same_limits(box: Served) -> None:
    limit(box, tool="write", masks="yes", result_kib=2)
    rule(box, "mcp__example__write", "ask")
    wire = began(box)
    said = {"path": "/t", "content": f" {TOKEN} " + "y" * 5_000}
    waiting = InBackground(lambda: wire.call("write", **said))
    (request_id,) = pending(box)
    decide(box, request_id)
    result = waiting.result()
    assert TOKEN not in str(result)
    assert "y" * 1_000 in read_all(wire, links(result)[0])


def test_calls_beyond_a_rate_are_not_sent_and_the_agent_is_told_when(box: Served, example: Example) -> None:
    limit(box, tool="echo", calls_per_minute=3)
    wire = began(box)
    refused = becomes(lambda: wire.call("echo", text="hi"), lambda result: bool(result.get("isError")))
    assert "may get 3 calls of echo a minute" in text_of(refused)
    sent = example.calls["echo hi"]
    other = began(box, key=OTHER_KEY)  # the rate is of all callers together
    assert other.call("echo", text="hi")["isError"]
    assert example.calls["echo hi"] == sent
    assert text_of(other.call("write", path="/t")) == "wrote /t"


def test_reads_have_the_rate_and_the_size_of_the_server(box: Served, example: Example) -> None:
    limit(box, calls_per_minute=2)
    wire = began(box)

    def read() -> dict[str, Any]:
        try:
            return wire.ask("resources/read", {"uri": "example://note"})
        except GatewayRefused as problem:
            return {"refused": problem.text}

    refused = becomes(read, lambda result: "refused" in result)
    assert "may get 2 calls a minute" in refused["refused"]


@pytest.fixture
def rude() -> Iterator[RudeServer]:
    with rude_server.running() as found:
        yield found


def test_a_tool_has_a_time_of_its_own(served: Served, rude: RudeServer) -> None:
    served.emptied(*TABLES)
    furnish(served, rude.url, server="rude")
    wire = began(served, server="rude")
    assert text_of(wire.call("fine")) == "fine"
    limit(served, "rude", "hang", call_seconds=1)
    box_page = served.sign_in("admin").get("/ui/mcp/tool/?server=rude&tool=hang").text
    assert "Longest call" in box_page
    assert "did not answer within 1 seconds" in text_of(wire.call("hang"))


def test_a_breaker_opens_after_failures_in_a_row_and_one_call_tries_the_server_again(
    served: Served, rude: RudeServer
) -> None:
    served.emptied(*TABLES)
    furnish(served, rude.url, server="rude")
    wire = began(served, server="rude")
    assert text_of(wire.call("fine")) == "fine"
    assert "Say after how many failures" in limit(served, "rude", breaker_failures=2)
    limit(served, "rude", breaker_failures=2, breaker_seconds=600)
    refused = becomes(lambda: wire.call("die"), lambda result: "in a row" in text_of(result))
    assert "gets no calls for" in text_of(refused)
    assert "in the middle of its answer" in text_of(refused)
    sent = rude.calls["die"]
    assert "gets no calls for" in text_of(wire.call("fine"))
    assert rude.calls["die"] == sent
    page = served.sign_in("viewer").get("/ui/mcp/servers/rude/").text
    assert "The circuit breaker is open" in page
    assert 'href="#limits"' in page or "paused" in page
    served.sql("UPDATE mcp_circuit_breakers SET open_until = '2026-01-01T00:00:00.000000Z'")
    assert becomes(lambda: wire.call("fine"), lambda result: text_of(result) == "fine")
    assert until(lambda: served.sql("SELECT count(*) FROM mcp_circuit_breakers") == [(0,)])
    kinds = {row[0] for row in served.sql("SELECT event_type FROM audit_logs WHERE target_id = 'rude'")}
    assert {"MCP_CALL_LIMITS_CHANGED", "MCP_BREAKER_OPENED", "MCP_BREAKER_CLOSED"} <= kinds


def test_a_person_closes_a_breaker(served: Served, rude: RudeServer) -> None:
    served.emptied(*TABLES)
    furnish(served, rude.url, server="rude")
    wire = began(served, server="rude")
    wire.call("fine")
    limit(served, "rude", breaker_failures=1, breaker_seconds=600)
    becomes(lambda: wire.call("die"), lambda result: "gets no calls for" in text_of(result))
    closed = served.sign_in("admin").post("/ui/mcp/limits/close/", data={"server": "rude"}).text
    assert "The server is called again." in closed
    assert becomes(lambda: wire.call("fine"), lambda result: text_of(result) == "fine")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"result_kib": 1}, "A result may have 2,048 to"),
        ({"calls_per_minute": 0}, "A rate is 1 to"),
        ({"calls_per_minute": "many"}, "The rate must be a whole number."),
        ({"tool": "gone", "result_kib": 4}, "This tool no longer exists."),
        ({"tool": "echo", "breaker_failures": 2, "breaker_seconds": 9}, "is set for the whole server"),
    ],
)
def test_limits_that_cannot_be_used_are_refused(box: Served, fields: dict[str, Any], words: str) -> None:
    assert words in limit(box, **fields)
    assert box.sql("SELECT count(*) FROM mcp_call_limits") == [(0,)]


def test_a_viewer_cannot_change_limits(box: Served) -> None:
    answer = box.sign_in("viewer").post("/ui/mcp/limits/save/", data={"server": "example", "result_kib": "4"})
    assert answer.status_code == 403


def test_a_rate_and_a_circuit_breaker_are_those_of_all_workers_together(
    served_template: Template, tmp_path: Path, example: Example
) -> None:
    with running(served_template, tmp_path / "two", workers=2) as box:
        furnish(box, example.url)
        began(box).ask("tools/list")
        assert "Saved." in limit(box, calls_per_minute=5)
        until(lambda: is_refused(began(box, stateless=True)))
        box.sql("DELETE FROM mcp_call_rates")
        before = example.calls["echo rate"]
        outcomes = [is_refused(began(box, stateless=True), "rate") for _ in range(16)]
        assert example.calls["echo rate"] - before == outcomes.count(False) <= 5
        assert len(box.worker_pids()) == 2
        box.sql("DELETE FROM mcp_call_rates")
        limit(box, calls_per_minute="", breaker_failures=2, breaker_seconds=600)
        box.sql("UPDATE mcp_upstreams SET url = 'http://127.0.0.1:9/mcp'")
        until(lambda: box.sql("SELECT open_until FROM mcp_circuit_breakers WHERE open_until IS NOT NULL") or (
            is_refused(began(box, stateless=True)) and None
        ))  # fmt: skip
        until(lambda: all("in a row" in refusal_text(began(box, stateless=True)) for _ in range(8)))


def refusal_text(wire: Wire, text: str = "limit") -> str:
    """Call over a connection of its own; return the whole answer."""
    return wire.send("tools/call", {"name": "echo", "arguments": {"text": text}}).text


def is_refused(wire: Wire, text: str = "limit") -> bool:
    """Say whether a call over a connection of its own did not run."""
    return f"echo: {text}" not in refusal_text(wire, text)
