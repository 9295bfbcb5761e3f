"""A message of very many fields is refused before anything looks at them all; a long text is not one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from coordinator.lib import json_bounds
from coordinator.lib.body_limits import MOST_VALUES
from tests.gateway.agents import Wire, text_of
from tests.gateway.example_server import Example
from tests.served import Served

MANY = {f"k{number}": number for number in range(MOST_VALUES + 1)}
WORDS = 'a,"b\\",' * 40_000


@pytest.mark.served
def test_a_call_with_too_many_fields_is_refused(box: Served, example: Example) -> None:
    wire = Wire(box)
    wire.initialize()
    call: dict[str, Any] = {"name": "write", "arguments": {"path": "/a", "content": "", "more": MANY}}
    answer = wire.post(json.dumps(wire.message("tools/call", call)).encode())
    assert (answer.status_code, answer.json()["detail"]) == (
        413,
        "The body holds more than 100,000 fields and items.",
    )
    assert not example.calls
    assert text_of(wire.call("write", path="/a", content=WORDS)) == f"wrote /a{WORDS}"


@pytest.mark.parametrize(
    ("value", "count"),
    [([1, 2, 3], 2), ({"a": ",,,", "b": [WORDS]}, 1), ([], 0), (WORDS, 0), (MANY, MOST_VALUES)],
)
def test_values_are_counted_without_the_commas_of_texts(value: Any, count: int) -> None:
    raw = json.dumps(value, separators=(",", ":")).encode()
    assert not json_bounds.has_too_many_json_values(raw, count)
    assert json_bounds.has_too_many_json_values(raw, count - 1)
