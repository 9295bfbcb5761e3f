"""Odd lists of tools: what is odd is left out and named, the rest is served, and a list that is cut off says so."""

from __future__ import annotations

import json

import pytest

from coordinator.client.mcp_lines import normalize_request_id
from coordinator.edge.gateway.upstreams import match_response_to_request_id
from coordinator.mcp.gateway.listing import parse_listing_page_unless_error
from coordinator.mcp.protocol.messages import parse_mcp_message
from tests.gateway import odd_listings
from tests.gateway.agents import Wire, furnish, text_of
from tests.gateway.odd_listings import STREAM_FORMS, serving_lists
from tests.served import Served

pytestmark = pytest.mark.served

SERVED = {
    "empty-cursor": ["first", "second"],
    "null-cursor": ["only"],
    "stuck-cursor": [f"t{number}" for number in range(8)],
    "many-pages": sorted(f"t{number}" for number in range(200)),
    "one-bad-schema": ["any_of", "good_one", "good_two", "null_schema", "out"],
    "same-name": ["read"],
    "long-names": [
        *("a" * 64, "b" * 128),
        "admin.tools.list",
        "with space",
        "ünïcödé",
        "slash/name",
        "Search",
        "search",
        "x__y",
    ],
}
SAID = {
    "stuck-cursor": "cut off after 2 pages: its cursor stands still",
    "many-pages": "cut off after 20 pages",
    "one-bad-schema": "boolean_schema: its inputSchema must be an object",
    "same-name": "two tools with the same name: search",
    "long-names": "needs a name of at most 200 characters",
}


@pytest.fixture
def listed(box: Served, mode: str):
    with serving_lists(mode) as url:
        furnish(box, url, server=f"odd-{mode}")
        wire = Wire(box, server="")
        wire.initialize()
        yield [tool for tool in wire.ask("tools/list")["tools"] if tool["name"].startswith("odd-")]


@pytest.mark.parametrize("mode", SERVED)
def test_what_is_fit_is_served_and_the_page_names_the_rest(
    box: Served, mode: str, listed: list[dict]
) -> None:
    assert {tool["name"].partition("__")[2] for tool in listed} == set(SERVED[mode])
    page = box.sign_in("admin").get(f"/ui/mcp/servers/odd-{mode}/").text
    assert SAID.get(mode, "") in page
    assert ("Left out of the server" in page or "cut off" in page) == (mode in SAID)


@pytest.mark.parametrize("mode", [mode for mode in SERVED if mode != "many-pages"])
def test_what_is_left_out_is_not_served_at_the_servers_own_address_either(box: Served, mode: str) -> None:
    with serving_lists(mode) as url:
        furnish(box, url, server=f"own-{mode}")
        wire = Wire(box, server=f"own-{mode}")
        wire.initialize()
        names, cursor, pages = list[str](), {}, 0
        while pages < 3:
            page = wire.ask("tools/list", cursor)
            pages += 1
            names += [tool["name"] for tool in page["tools"]]
            if page.get("nextCursor") is None:
                break
            cursor = {"cursor": page["nextCursor"]}
    assert pages == {"empty-cursor": 2, "stuck-cursor": 2}.get(mode, 1)
    assert set(names) == set(SERVED[mode])
    page_text = box.sign_in("admin").get(f"/ui/mcp/servers/own-{mode}/").text
    assert SAID.get(mode, "") in page_text


@pytest.mark.parametrize("mode", ["one-bad-schema", "odd-schemas"])
def test_every_schema_that_is_served_says_that_it_is_of_an_object(mode: str, listed: list[dict]) -> None:
    assert listed
    for tool in listed:
        assert tool["inputSchema"]["type"] == "object"
        assert tool.get("outputSchema", {"type": "object"})["type"] == "object"
        assert None not in tool.values()


@pytest.mark.parametrize("mode", ["odd-schemas"])
def test_the_rest_of_a_schema_is_served_as_it_came(listed: list[dict]) -> None:
    tools = {tool["name"].partition("__")[2]: tool for tool in listed}
    assert tools["ref"]["inputSchema"]["properties"]["root"] == {"$ref": "#/$defs/Node"}
    assert tools["typeless"]["inputSchema"]["properties"] == {
        "private": {"description": "x", "default": None}
    }
    assert tools["annotated"]["_meta"] == {"x/y": 1}


def test_an_odd_tool_on_one_page_hides_no_tool_of_the_next(
    box: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def listing(cursor: str | None) -> dict:
        tool = {"inputSchema": {"type": "object"}}
        odd = {"name": "odd", "inputSchema": True}
        if cursor is None:
            return {"tools": [odd, {"name": "first", **tool}], "nextCursor": "2"}
        return {"tools": [{"name": "last", **tool}, odd]}

    monkeypatch.setattr(odd_listings, "load_listing", lambda mode: listing)
    with serving_lists("") as url:
        furnish(box, url, server="two pages")
        wire = Wire(box, server="")
        wire.initialize()
        names = [tool["name"] for tool in wire.ask("tools/list")["tools"]]
        assert [name for name in names if "pages" in name] == ["two_pages__first", "two_pages__last"]
    (left_out,) = box.sql(
        "SELECT metadata FROM audit_logs WHERE target_id = 'two pages' AND result = 'failure'"
    )
    assert json.loads(left_out[0])["count"] == 2


@pytest.mark.parametrize("form", STREAM_FORMS)
def test_streams_in_rare_forms_are_read(box: Served, form: str) -> None:
    with serving_lists("null-cursor", form) as url:
        furnish(box, url, server="odd")
        for server in ("", "odd"):
            wire = Wire(box, server=server)
            wire.initialize()
            name = "only" if server else "odd__only"
            assert name in [tool["name"] for tool in wire.ask("tools/list")["tools"]]
            assert text_of(wire.call(name)) == "grüße 日本語 🌤"


def test_a_byte_order_mark_before_a_message_is_left_out() -> None:
    message = parse_mcp_message(b'\xef\xbb\xbf{"jsonrpc": "2.0", "id": 1, "method": "ping"}')
    assert (message.method, message.raw[:1]) == ("ping", b"{")


@pytest.mark.parametrize("cursor", [7, {"a": 1}, [], False])
def test_a_cursor_that_is_no_text_ends_the_list(
    box: Served, monkeypatch: pytest.MonkeyPatch, cursor: object
) -> None:
    tools = [{"name": "first", "inputSchema": {"type": "object"}}]
    monkeypatch.setattr(
        odd_listings, "load_listing", lambda mode: lambda _: {"tools": tools, "nextCursor": cursor}
    )
    with serving_lists("") as url:
        furnish(box, url, server="odd")
        wire = Wire(box, server="odd")
        wire.initialize()
        assert wire.ask("tools/list") == {"tools": tools}
    page = box.sign_in("admin").get("/ui/mcp/servers/odd/").text
    assert "cut off: its cursor is no text" in page


def test_a_server_that_answers_an_error_is_named_and_asked_again(
    box: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter(
        [{"error": {"code": -32603, "message": "not yet"}}, {"error": {"code": -32601, "message": "no"}}]
    )
    tools = {"tools": [{"name": "first", "inputSchema": {"type": "object"}}]}
    monkeypatch.setattr(odd_listings, "load_listing", lambda mode: lambda _: next(answers, tools))
    with serving_lists("") as url:
        furnish(box, url, server="odd")
        lists = []
        for _ in range(3):
            wire = Wire(box, server="")
            wire.initialize()
            lists.append(wire.ask("tools/list"))
    assert [page.get("_meta") for page in lists] == [{"signalbox/unreachable": ["odd"]}, None, None]
    names = [[tool["name"] for tool in page["tools"] if tool["name"].startswith("odd")] for page in lists]
    assert names == [[], [], ["odd__first"]]


@pytest.mark.parametrize(
    ("escapes", "text"),
    [
        (rb"cut \ud83d", "cut \ufffd"),
        (rb"\ude00 \uD83D\uDE00", "\ufffd 😀"),
        (rb"C:\\ud83d \ud83d", "C:\\ud83d \ufffd"),
    ],
)
def test_half_a_character_does_not_hide_a_response(escapes: bytes, text: str) -> None:
    body = b'{"jsonrpc":"2.0","id":1,"result":{"text":"' + escapes + b'"}}'
    response = match_response_to_request_id(body, 1)
    assert response is not None
    assert json.loads(response)["result"]["text"] == text
    assert match_response_to_request_id(body, "1") is None


@pytest.mark.parametrize(
    ("tool", "reason"),
    [
        (b"null", "Tool 1 is no object that can be read."),
        (b'{"name": "a", "inputSchema": {"x": 1e999}}', "Tool 1 is no object that can be read."),
        (rb'{"name": "a\ud83d"}', "a lone surrogate"),
        (
            b'{"name": "a", "description": "x", "Description": "y"}',
            "a: it spells Description with other capitals",
        ),
        (b'{"name": "a", "INPUTSCHEMA": {}}', "a: it spells INPUTSCHEMA with other capitals"),
    ],
)
def test_a_tool_that_cannot_be_read_alone_is_left_out(tool: bytes, reason: str) -> None:
    page = parse_listing_page_unless_error(
        b'{"jsonrpc":"2.0","id":1,"result":{"tools":[' + tool + b',{"name":"fine","inputSchema":{}}]}}'
    )
    assert page is not None
    assert [listed.name for listed in page.listing.tools] == ["fine"]
    (skipped,) = page.listing.left_out
    assert reason in skipped.reason


def test_ids_that_are_a_number_and_its_text_are_two_calls() -> None:
    assert normalize_request_id("101") != normalize_request_id(101)
    assert normalize_request_id(101) == normalize_request_id(json.loads("101.0"))
