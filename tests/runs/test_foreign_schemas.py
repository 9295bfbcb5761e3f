"""A runner's or an operator's JSON Schema is applied within limits, whatever it asks for."""

from __future__ import annotations

import re
from typing import Any
from unittest import mock

import pytest

from coordinator.errors import BadRequest, ServiceBusy
from coordinator.runs import parameters, schema_jobs, schemas
from coordinator.runs.parameters import require_valid_parameters

pytestmark = pytest.mark.one_engine

ITEM = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
REFERRING = {"$ref": "#/$defs/item", "$defs": {"item": ITEM}}


def doubling(levels: int, **more: Any) -> dict[str, Any]:
    """Return a schema of some 2 kB that is evaluated 2 ** `levels` times."""
    definitions: dict[str, Any] = {
        f"d{level}": {"allOf": [{"$ref": f"#/$defs/d{level + 1}"}] * 2} for level in range(levels)
    }
    return {"$ref": "#/$defs/d0", "$defs": definitions | {f"d{levels}": {"type": "object"}}, **more}


@pytest.mark.parametrize(
    ("schema", "order"),
    [
        (doubling(30), {"a": "x"}),
        (doubling(30, unevaluatedProperties=False), {"a": "x"}),
        ({"patternProperties": {"(a+)+$": {}}, "additionalProperties": False}, {"a" * 40 + "!": 1}),
        ({"additionalProperties": {"uniqueItems": True}}, {"a": [[{"n": n}] for n in range(20_000)]}),
        ({"additionalProperties": {"items": {"anyOf": [{"type": "null"}] * 3_000}}}, {"a": [1] * 50_000}),
    ],
    ids=["references", "unevaluated", "pattern of a name", "unique", "each item"],
)
def test_a_schema_without_end_is_refused_and_takes_no_time_of_this_process(
    schema: dict[str, Any], order: dict[str, Any]
) -> None:
    with (
        mock.patch.object(schemas, "find_schema_errors", side_effect=AssertionError("validated here")),
        pytest.raises(BadRequest, match="The parameters_schema of bomb takes too long"),
    ):
        require_valid_parameters(order, schema, "bomb")
    require_valid_parameters({"a": "x"}, REFERRING, "next")


@pytest.mark.parametrize("order", [{"a": "x"}, {"a": 1}, {}])
def test_the_child_finds_what_this_process_finds(order: dict[str, Any]) -> None:
    flat, errors = ITEM, schemas.find_schema_errors(order, REFERRING)
    assert [error["message"] for error in errors] == [
        error["message"] for error in schemas.find_schema_errors(order, flat)
    ]
    assert parameters.find_parameter_errors_in_sandbox(order, REFERRING) == errors


@pytest.mark.parametrize(
    ("schema", "order", "is_quick"),
    [
        (ITEM, {"a": "x"}, True),
        (ITEM, {"a": "x" * 100_000}, True),
        (REFERRING, {"a": "x"}, False),
        ({"properties": {"a": {"items": {"uniqueItems": True}}}}, {"a": []}, False),
        ({"anyOf": [{"type": "string"}] * 400}, {"a": "x"}, True),
        ({"anyOf": [{"type": "string"}] * 400}, {"a": "x" * 5_000}, False),  # each error copies the text
        ({"items": {"enum": [*range(100)]}}, {"a": [*range(100)]}, False),
        ({"x": [[[]]] * 6_000}, {}, False),
    ],
)
def test_only_a_schema_whose_work_is_bounded_is_applied_in_this_process(
    schema: Any, order: dict[str, Any], is_quick: bool
) -> None:
    size = len(str(order))
    assert schemas.is_schema_validation_bounded(order, schema, size) is is_quick


def test_an_order_does_not_wait_in_line_for_the_child() -> None:
    with (
        parameters._sandbox_place,
        mock.patch.object(parameters, "VALIDATION_WAIT_SECONDS", 0.01),
        pytest.raises(ServiceBusy, match="Nothing was ordered"),
    ):
        require_valid_parameters({"a": "x"}, REFERRING, "other")
    require_valid_parameters({"a": "x"}, ITEM, "flat")


def test_messages_do_not_repeat_a_whole_value() -> None:
    order = {"a": ["x" * 50_000]}
    for errors in (
        schemas.find_schema_errors(order, ITEM),
        parameters.find_parameter_errors_in_sandbox(order, REFERRING),
    ):
        assert [len(error["message"]) for error in errors] == [schemas.MAX_MESSAGE_LENGTH + 1]


def test_the_child_answers_for_a_schema_that_cannot_be_applied() -> None:
    body = b'{"parameters": {}, "schema": {"$ref": "#/missing"}}'
    facts, _ = schema_jobs.validate_parameters_job({}, body)
    assert re.match("PointerToNowhere", str(facts["inapplicable"]))
