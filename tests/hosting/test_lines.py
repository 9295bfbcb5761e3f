"""A message for a stdio server is one line, whatever its server takes for the end of one."""

from __future__ import annotations

import json

import pytest

from coordinator.mcp.protocol import envelopes

pytestmark = pytest.mark.one_engine


@pytest.mark.parametrize("sign", ["\n", "\r", "\x85", "\u2028", "\u2029"])
def test_no_text_ends_the_line_of_a_message(sign: str) -> None:
    message = {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"text": f"a{sign}b"}}
    line = envelopes.parse_envelope(
        json.dumps(message, ensure_ascii=False, indent=1).encode()
    ).encode_as_jsonrpc_line()
    assert line.decode().splitlines() == [line.decode()]
    assert json.loads(line) == message
