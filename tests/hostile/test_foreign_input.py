"""Each parser of the table (coordinator.lib.foreign_input) holds its budget on its worst input."""

from __future__ import annotations

import base64
import gzip
import importlib
import io
import struct
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest import mock

import msgspec
import pytest
import re2
from django.http.cookie import parse_cookie

from coordinator.actions.sessions.tool_calls import parse_edited_tool_input
from coordinator.api.application import JsonParser
from coordinator.api.chat import parse_body_json as chat_json
from coordinator.calls.descriptions import describe_call
from coordinator.chat import picture_sizes, thumbnails
from coordinator.client import sse
from coordinator.dialects import otlp_wire
from coordinator.dialects.hooks import UnreadableJson, decode_hook_rejecting_duplicates
from coordinator.edge.gateway.upstreams import is_response_to_request_id
from coordinator.edge.http.bodies import decompress_gzip
from coordinator.edge.http.messages import parse_query_string
from coordinator.edge.http.validation_errors import parse_new_event
from coordinator.edge.ingest import driven_sessions as driving
from coordinator.edge.ingest import events as ingest
from coordinator.edge.ingest import otlp
from coordinator.edge.policy.access_check import parse_access_body
from coordinator.errors import BadRequest, RequestTooLarge, SignalboxError, UnprocessableRequest
from coordinator.identity import passkeys
from coordinator.identity.openid import fetching, tokens
from coordinator.lib import json_bounds
from coordinator.lib.body_limits import EVENTS
from coordinator.lib.foreign_input import FOREIGN_PARSERS
from coordinator.live.streams import last_event_id_or_none
from coordinator.mcp.gateway import elicitation, listing
from coordinator.mcp.protocol import messages, oauth
from coordinator.mcp.servers import discovery, tools
from coordinator.models.fields import UnreadableText, decode_stored_json
from coordinator.policy.rules import tool_rules
from coordinator.runs.parameters import require_valid_parameters
from coordinator.sandbox import JobFailed, frames
from coordinator.search.text import MOST_TERMS, parse_search_terms
from coordinator.secrets.masking import mask_secrets_in_value
from dashboard.mcp.access_sheet import deserialize_grant_edits
from dashboard.text import diffs, markdown
from tests.bodies import test_shares as bodies

pytestmark = pytest.mark.one_engine

MIB = 1024 * 1024
DEEP = b"[" * 200_000
HEAVY = b"[" + b"[]," * 4_000_000 + b"[]]"


def refused(
    kind: type[Exception] | tuple[type[Exception], ...], work: Callable[..., Any], *args: Any
) -> None:
    with pytest.raises(kind):
        work(*args)


def nested(field: bytes) -> bytes:
    return b'{"' + field + b'":' + DEEP + b"}"


def read_body() -> None:
    assert isinstance(
        bodies.run(lambda kept: bodies.read(kept, "key:1", bodies.Line(HEAVY, whole=True))), RequestTooLarge
    )


def read_gzip() -> None:
    refused(RequestTooLarge, decompress_gzip, gzip.compress(bytes(50 * MIB)), MIB)


def measure_json() -> None:
    refused(json_bounds.JsonTooDeep, json_bounds.require_json_bounds, DEEP)
    refused(json_bounds.JsonTooHeavy, json_bounds.require_json_bounds, HEAVY)


def read_api_body() -> None:
    for body in (DEEP, HEAVY):
        refused(ValueError, JsonParser().parse_body, SimpleNamespace(body=body))


def read_chat_fields() -> None:
    for body in (DEEP, HEAVY):
        refused(BadRequest, chat_json, body)


def read_event() -> None:
    refused(UnprocessableRequest, parse_new_event, nested(b"tool_input"))


def read_batch() -> None:
    for body, kind in (
        (b"{}\n" * 10_001, b"application/x-ndjson"),
        (b"\n" * 20_000_000, b"application/x-ndjson"),
        (b"[" + b"{}," * 10_001 + b"{}]", b"application/json"),
    ):
        refused(RequestTooLarge, ingest.parse_each_event_or_error, body, kind)


def read_access_question() -> None:
    refused(SignalboxError, parse_access_body, nested(b"agent_id"))


def read_hook() -> None:
    refused(UnreadableJson, decode_hook_rejecting_duplicates, nested(b"tool_input"))
    names = b",".join(b'"k%d":1' % number for number in range(200_000))
    # A quick count of the names, not one of all before each: that would be 20 thousand million steps.
    refused(
        UnreadableJson, decode_hook_rejecting_duplicates, b'{"tool_input":{' + names + b',"last":1,"last":2}}'
    )


def read_updates() -> None:
    refused(UnprocessableRequest, driving.decode_runner_body, driving.SessionUpdates, nested(b"updates"))


def weigh_protobuf() -> None:
    most = EVENTS.key.becomes
    empty_records = b"\x12\x00" * 2_000_000  # scope logs of no bytes, in one resource
    body = b"\x0a" + otlp_varint(len(empty_records)) + empty_records
    assert otlp_wire.estimate_decoded_bytes("logs", body, most) > most


def otlp_varint(number: int) -> bytes:
    found = b""
    while number > 0x7F:
        found += bytes([number & 0x7F | 0x80])
        number >>= 7
    return found + bytes([number])


def read_otlp_json() -> None:
    for body in (DEEP, HEAVY * 3):
        refused(BadRequest, otlp.parse_session_reports_and_omissions, "logs", b"application/json", body, None)


def apply_schema() -> None:
    levels = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)}
    refused(
        BadRequest,
        require_valid_parameters,
        {},
        {"$ref": "#/$defs/d0", "$defs": levels | {"d40": {}}},
        "bomb",
    )


def read_mcp_message() -> None:
    for body in (nested(b"params"), HEAVY * 3):
        refused(messages.UnreadableMessage, messages.parse_mcp_message, body)


def read_mcp_answer() -> None:
    begins = b'{"jsonrpc":"2.0","id":1,"result":'
    assert not is_response_to_request_id(begins + DEEP + b"}", 1)
    assert not is_response_to_request_id(begins + HEAVY * 2 + b"}", 1)


def split_mcp_events() -> None:
    refused(sse.EventTooLong, sse.EventSplitter().feed, b"id\n" * 5 * MIB + b"\n")
    refused(sse.EventTooLong, sse.EventSplitter().feed, b"data: " + b"x" * 17 * MIB)


def read_mcp_tools() -> None:
    page = listing.parse_listing_page_unless_error(
        b'{"result":{"tools":[' + b",".join(b'{"name":"t%d"}' % n for n in range(100_000)) + b"]}}"
    )
    assert page is not None
    assert len(page.listing.tools) == tools.MOST_TOOLS


def read_pasted_tools() -> None:
    refused(RequestTooLarge, tools.parse_pasted_tool_listing, " " * 3_000_000)
    refused(UnprocessableRequest, tools.parse_pasted_tool_listing, "[" * 1_000_000)


def ask_program() -> None:
    assert (discovery.MOST_BYTES, tools.MAX_LISTING_PAGES) == (
        4_000_000,
        20,
    )  # how they hold: tests/mcp/test_discovery.py


def read_authorization_answer() -> None:
    """An answer as large as one may be: deep, and with a number for each token."""
    deep = b"[" * (oauth.MOST_ANSWER // 2) + b"]" * (oauth.MOST_ANSWER // 2)
    with pytest.raises(oauth.AuthorizationFailed):
        oauth.OAuthAnswer(200, {}, deep).decode_json_object_body()
    answered = oauth.OAuthAnswer(200, {}, b'{"token_type":"bearer","expires_in":1e308,"access_token":7}')
    with pytest.raises(oauth.AuthorizationFailed):
        oauth.parse_issued_tokens(answered.decode_json_object_body())


def read_server_question() -> None:
    """A form with more fields, and longer texts, than a person could read."""
    field = {"type": "string", "title": "t" * 1_000, "enum": ["x" * 100] * 100}
    schema = {"type": "object", "properties": {f"f{number}": field for number in range(1_000)}}
    params = {"message": "m" * 100_000, "requestedSchema": schema}
    asked = {"jsonrpc": "2.0", "id": 1, "method": "elicitation/create", "params": params}
    question = elicitation.parse_server_elicitation_or_none(msgspec.json.encode(asked))
    assert question is None or question.params is None


def read_query() -> None:
    assert (
        len(parse_query_string(b"a=%41&" * 1_400)["a"]) == 1_400
    )  # 8 KiB, which is as long as a request's line may be


def read_cookies() -> None:
    assert len(parse_cookie("; ".join(f"c{n}=%22" for n in range(8_000)))) == 8_000  # 64 KiB


def read_last_event_id() -> None:
    assert last_event_id_or_none(b"9" * 60_000, None) == -1


def read_search() -> None:
    assert len(parse_search_terms('"' + 'a" "' * 100_000)) <= MOST_TERMS


def compile_pattern() -> None:
    refused(re2.error, tool_rules.compile_rule_pattern, "((a{100}){100}){100}", True)
    assert tool_rules.compile_rule_pattern("(a+)+$", True).search("a" * 1_000_000 + "!") is None


def parse_shell_texts() -> None:
    for hostile in (
        "<<" * 20_000,
        "a=(" * 5_000,
        "$(" * 20_000,
        "'" * 60_001,
        "{a,b}" * 5_000,
        "x;" * 30_000,
    ):
        assert describe_call("Bash", {"command": hostile}, "/srv").unreadable, hostile[:10]
    assert describe_call("Bash", {"command": "ls;" * 400_000}, "/srv").unreadable


def mask_text() -> None:
    for piece in (
        "AKIA",
        "password=",
        "-----BEGIN PRIVATE KEY-----",
        "curl -u a:",
        '"token":"',
        "eyJ.",
        "\\",
    ):
        mask_secrets_in_value(piece * (2 * MIB // len(piece)))


def render_markdown() -> None:
    assert markdown.render_markdown("[a](" * 20_000)


def colour_code() -> None:
    assert markdown.highlight_code('"""' * 30_000, language="python")


def compare_texts() -> None:
    assert diffs.line_diff_opcodes_or_none(["a"] * 1_500, ["b"] * 1_500) is None
    lines = [str(number % 7) for number in range(1_000)]
    diffs.line_diff_opcodes_or_none(lines, lines[::-1])


def read_picture_size() -> None:
    file = io.BytesIO(b"\xff\xd8" + b"\xff\xe0\x00\x02" * 1_000_000)
    with mock.patch.object(file, "read", wraps=file.read) as reads:
        assert picture_sizes.read_image_size(file, "image/jpeg") is None
    assert reads.call_count <= picture_sizes.MOST_SEGMENTS + 2


def draw_picture() -> None:
    head = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    bomb = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + b"IHDR" + head + bytes(4)
    facts = {"mime_type": "image/png", "side": 960, "most_pixels": thumbnails.MOST_PIXELS}
    refused(JobFailed, lambda: thumbnails._sandbox.run_sandbox_job("thumbnail", bomb, **facts))


def read_form() -> None:
    refused(UnprocessableRequest, deserialize_grant_edits, "[" * 2 * MIB)


def read_edited_input() -> None:
    edited = SimpleNamespace(edited="[" * 2 * MIB, edited_field=None)
    refused(UnprocessableRequest, parse_edited_tool_input, {}, edited)


def read_provider() -> None:
    assert (fetching.MOST_BYTES, fetching.IN_ALL) == (
        512 * 1024,
        8.0,
    )  # how they hold: tests/openid/test_attacks.py
    with (
        mock.patch.object(tokens.provider, "get_or_fetch_provider_keys", return_value=None),
        mock.patch.object(tokens.provider, "accepted_signature_algorithms", return_value=["RS256"]),
    ):
        refused(Exception, tokens.decode_signed_token, "a." * 250_000)


def read_passkey_answer() -> None:
    refused(passkeys.PasskeyRefused, passkeys.parse_passkey_answer, "[" * passkeys.MAX_ANSWER_CHARACTERS)
    refused(
        passkeys.PasskeyRefused, passkeys.parse_passkey_answer, "x" * (passkeys.MAX_ANSWER_CHARACTERS + 1)
    )
    known = passkeys.Passkey(public_key="", user_handle="", sign_count=0)
    for data in (
        b"\x81" * 10_000,
        b"\x9b" + b"\xff" * 10_000,
        b"\xc2\x5a" + b"\xff" * 10_000,
        b"\xd8\x23\x79",
    ):
        text = base64.urlsafe_b64encode(b"\x00" * 32 + b"\xc5" + b"\x00" * 4 + data).rstrip(b"=").decode()
        parts = {
            "clientDataJSON": "e30",
            "authenticatorData": text,
            "attestationObject": text,
            "signature": "",
        }
        answer = passkeys.PasskeyAnswer("a", b"", "", {"id": "a", "rawId": "a", "response": parts})
        refused(passkeys.PasskeyRefused, passkeys.verify_passkey_and_get_counter, answer, known)
        refused(passkeys.PasskeyRefused, passkeys.verify_new_passkey, answer)


def read_stored() -> None:
    assert isinstance(decode_stored_json("[" * 1_000_000), UnreadableText)


def read_frame() -> None:
    data = io.BytesIO(struct.pack(">II", frames.MOST_FACTS + 1, 0))
    refused(frames.BrokenFrame, lambda: frames.read_frame(data.read, most=MIB))
    data = io.BytesIO(struct.pack(">II", 2, 2 * MIB))
    refused(frames.BrokenFrame, lambda: frames.read_frame(data.read, most=MIB))


def read_report() -> None:
    pass  # what comes from outside ends in the child: tests/notifications


WORST: dict[str, Callable[[], None]] = {
    "request body": read_body,
    "gzip": read_gzip,
    "JSON's depth and weight": measure_json,
    "JSON body of the API": read_api_body,
    "fields of a chat message": read_chat_fields,
    "one event": read_event,
    "batch of events": read_batch,
    "question about access": read_access_question,
    "hook of an agent": read_hook,
    "a runner's updates": read_updates,
    "OTLP in protobuf": weigh_protobuf,
    "OTLP in JSON": read_otlp_json,
    "parameters' JSON Schema": apply_schema,
    "message of an MCP client": read_mcp_message,
    "answer of an MCP server": read_mcp_answer,
    "question of an MCP server to a person": read_server_question,
    "events of an MCP server": split_mcp_events,
    "tools of an MCP server": read_mcp_tools,
    "pasted list of tools": read_pasted_tools,
    "tools of a program that is started": ask_program,
    "answer of an authorization server": read_authorization_answer,
    "query of an address": read_query,
    "cookies": read_cookies,
    "Last-Event-ID": read_last_event_id,
    "words to search for": read_search,
    "pattern of a rule": compile_pattern,
    "shell text of a call": parse_shell_texts,
    "secrets in a text": mask_text,
    "Markdown and HTML": render_markdown,
    "code to colour": colour_code,
    "two texts to compare": compare_texts,
    "size of a picture": read_picture_size,
    "picture": draw_picture,
    "JSON in a form": read_form,
    "edited input": read_edited_input,
    "answer and token of the provider": read_provider,
    "a device's answer with a passkey": read_passkey_answer,
    "stored JSON": read_stored,
    "frames of a child process": read_frame,
    "report of the program that sends notifications": read_report,
}


def test_each_parser_has_a_worst_input() -> None:
    assert list(WORST) == [parser.name for parser in FOREIGN_PARSERS]


@pytest.mark.timeout(60)  # each takes a second at most; what has no budget takes years
@pytest.mark.parametrize("name", WORST)
def test_the_worst_input_stays_within_the_budget(name: str) -> None:
    WORST[name]()


@pytest.mark.parametrize("parser", FOREIGN_PARSERS, ids=lambda parser: parser.name)
def test_each_entry_of_the_table_exists(parser: Any) -> None:
    module, _, path = parser.entry.partition(":")
    found: Any = importlib.import_module(module)
    for name in path.split("."):
        found = getattr(found, name)
    assert callable(found)
    assert parser.budget
