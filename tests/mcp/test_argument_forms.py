"""A form for a tool's arguments is made from any schema, and says what is wrong at its field."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils.datastructures import MultiValueDict

from dashboard.mcp.argument_form import ArgumentForm

ORDER = {
    "type": "object",
    "required": ["customer", "address"],
    "properties": {
        "customer": {"type": "string", "description": "<b>Number</b>"},
        "priority": {"enum": ["low", 2, None]},
        "gift": {"type": "boolean"},
        "count": {"type": ["integer", "null"], "minimum": 1, "default": 1},
        "discount": {"anyOf": [{"type": "number", "maximum": 50}, {"type": "null"}]},
        "articles": {"type": "array", "items": {"type": "integer"}},
        "address": {"$ref": "#/$defs/Address"},
        "billing": {"$ref": "#/$defs/Address"},
        "rest": {"type": "object"},
    },
    "$defs": {
        "Address": {
            "type": "object",
            "required": ["street"],
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
}
GOOD = {"customer": "C-1", "address / street": "Main street"}


def fill(schema: Any, *, raw: bool = False, confirm: bool = False, **typed: str) -> ArgumentForm:
    """Return the form with what was typed by label."""
    names = {field.label: name for name, field in ArgumentForm(schema, must_confirm=False).fields.items()}
    data = {names.get(label, label): text for label, text in typed.items()}
    return ArgumentForm(
        schema,
        MultiValueDict({name: [text] for name, text in data.items()}),
        is_raw=raw,
        must_confirm=confirm,
    )


def test_every_kind_of_argument_becomes_what_the_schema_says() -> None:
    form = fill(
        ORDER,
        **GOOD,
        priority="1",
        gift="false",
        count="12345678901234567890123",
        discount="2.5",
        articles="1\r\n2\r\n",
        rest='{"a": [1]}',
    )
    assert form.is_valid(), form.errors
    assert form.arguments == {
        "customer": "C-1",
        "priority": 2,
        "gift": False,
        "count": 12345678901234567890123,
        "discount": 2.5,
        "articles": [1, 2],
        "address": {"street": "Main street"},
        "rest": {"a": [1]},
    }


def test_what_is_left_empty_is_not_sent() -> None:
    form = fill(ORDER, **GOOD)
    assert form.is_valid(), form.errors
    assert form.arguments == {"customer": "C-1", "address": {"street": "Main street"}}


@pytest.mark.parametrize(
    ("label", "text", "says"),
    [
        ("customer", "", "The tool requires this argument."),
        ("address / street", "", "The tool requires this argument."),
        ("count", "0", "At least 1."),
        ("count", "1.5", "not a whole number"),
        ("count", "true", "not a whole number"),
        ("discount", "51", "At most 50."),
        ("discount", "1e400", "not a number"),
        ("articles", "1\nx", "'x' is not a whole number."),
        ("rest", "[1]", "This must be a JSON object."),
        ("rest", "{", "This is not JSON"),
        ("rest", '{"a": NaN}', "This is not JSON"),
        ("priority", "7", "valid choice"),
    ],
)
def test_what_is_wrong_is_said_at_its_field_and_what_was_typed_is_kept(
    label: str, text: str, says: str
) -> None:
    form = fill(ORDER, **(GOOD | {label: text}))
    assert not form.is_valid()
    (name,) = form.errors
    assert form.fields[name].label == label
    assert says in form.errors[name][0]
    assert form[name].value() == text


def test_an_argument_is_required_where_its_object_is_sent() -> None:
    form = fill(ORDER, **GOOD, **{"billing / city": "Bonn"})
    assert not form.is_valid()
    assert [form.fields[name].label for name in form.errors] == ["billing / street"]


def test_descriptions_and_names_are_texts_not_markup() -> None:
    form = fill({"properties": {"<script>": {"description": "<b>bold</b>"}}})
    page = form.as_p()
    assert "<script>" not in page
    assert "<b>" not in page


@pytest.mark.parametrize(
    "schema",
    [
        {"anyOf": [{"properties": {"id": {"type": "string"}}}, {"properties": {"slug": {}}}]},
        {"properties": {str(number): {} for number in range(100)}},
        {"properties": ["a"]},
        {"$ref": "#/$defs/Missing"},
        None,
        7,
    ],
)
def test_a_schema_that_no_form_can_show_is_filled_in_as_json(schema: Any) -> None:
    form = fill(schema, arguments='{"id": 12345678901234567890123}')
    assert form.is_odd
    assert form.is_valid(), form.errors
    assert form.arguments == {"id": 12345678901234567890123}


@pytest.mark.parametrize(
    "inner",
    [
        {"$ref": "#"},
        {"$ref": "#/$defs/Node"},
        {"$ref": 7},
        {"type": 7},
        {"type": ["string", "integer"]},
        {"enum": []},
        {"enum": "abc"},
        {"const": {"a": 1}},
        {"type": "array", "items": [True]},
        {"type": "object", "properties": 7},
        {"oneOf": [{"type": "null"}]},
        {"type": "string", "maxLength": "x", "description": 7, "default": ["a"]},
        {"type": "integer", "minimum": "x", "default": "x"},
        True,
        None,
        "x",
    ],
)
def test_odd_parts_of_a_schema_break_no_form(inner: Any) -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}
    form = ArgumentForm({"properties": {"a": inner}, "$defs": {"Node": node}}, {}, must_confirm=False)
    assert form.as_p()
    assert form.is_valid(), form.errors
    assert form.arguments == {}


def test_what_may_change_something_is_confirmed() -> None:
    assert not fill({}, confirm=True).is_valid()
    assert fill({}, confirm=True, confirmed="on").is_valid()


@pytest.mark.parametrize("text", ["[]", "7", "{", '{"a": Infinity}', "[" * 1000])
def test_arguments_in_json_are_an_object(text: str) -> None:
    form = fill({}, raw=True, arguments=text)
    assert not form.is_valid()
    assert form["arguments"].value() == text
