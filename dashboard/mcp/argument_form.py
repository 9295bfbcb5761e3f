"""A form for the arguments of a tool, made from its input schema, which is untrusted.

What a form cannot show is entered as JSON: all arguments, or a single one. The server validates what the form
does not.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.html import escape

from coordinator.lib.invisible import reveal_invisible_characters
from coordinator.lib.json_bounds import load_bounded_json

MAX_FIELDS = 40
MAX_DEPTH = 3  # of nested objects that get fields of their own
MAX_CHOICES = 200
MAX_DESCRIPTION = 600  # characters
LONG_TEXT = 200  # longest text that a one-line field is used for
RAW = "arguments"
NOT_SENT = ("", "—")
SCALARS = ("string", "integer", "number", "boolean")


class UnsupportedSchema(Exception):
    """Raised if the form cannot show a schema, so that all arguments are entered as JSON."""


@dataclass(frozen=True, slots=True)
class ArgumentField:
    """One field of the form: the path of its value, and its part of the schema.

    `owners` says for each object around it, from the outermost, whether that is required.
    """

    path: tuple[str, ...]
    kind: str
    schema: Mapping[str, Any]
    is_required: bool
    owners: tuple[bool, ...] = ()

    @property
    def label(self) -> str:
        return reveal_invisible_characters(" / ".join(name or '""' for name in self.path))[:LONG_TEXT]

    @property
    def is_required_at_every_level(self) -> bool:
        return self.is_required and all(self.owners)


class ArgumentForm(forms.Form):
    """The arguments of one call. After is_valid() has returned True, `arguments` is what to send."""

    def __init__(
        self, schema: Any, data: Mapping[str, Any] | None = None, *, is_raw: bool = False, must_confirm: bool
    ) -> None:
        super().__init__(data)
        self.arguments: dict[str, Any] = {}
        self.listed: list[ArgumentField] = []
        self.is_odd = False
        try:
            self.listed = build_argument_fields_of_schema(schema)
        except UnsupportedSchema:
            self.is_odd = True
        self.is_raw = is_raw or self.is_odd
        if self.is_raw:
            self.fields[RAW] = forms.CharField(
                label="Arguments",
                initial="{}",
                widget=forms.Textarea({"rows": 8, "spellcheck": "false", "class": "mono"}),
                help_text="A JSON object.",
            )
        else:
            for index, argument in enumerate(self.listed):
                self.fields[f"argument_{index}"] = build_argument_field(argument)
        if must_confirm:
            self.fields["confirmed"] = forms.BooleanField(
                label="Run it although it may change or delete something",
                error_messages={"required": "Confirm that the tool may change or delete something."},
            )

    def clean(self) -> dict[str, Any]:
        values: dict[str, Any] = super().clean() or {}
        if self.is_raw:
            if RAW in values:
                self.set_arguments_from_raw_json(values[RAW])
            return values
        typed: dict[tuple[str, ...], Any] = {}
        for index, argument in enumerate(self.listed):
            name = f"argument_{index}"
            text = values.get(name)
            if text in {None, ""}:
                continue
            try:
                typed[argument.path] = parse_argument(argument, text)
            except ValidationError as problem:
                self.add_error(name, problem)
        for index, argument in enumerate(self.listed):
            name = f"argument_{index}"
            is_missing = argument.path not in typed and name not in self.errors
            owner = argument.path[:-1]
            if is_missing and argument.is_required and owner and has_typed_value_below_path(typed, owner):
                self.add_error(name, f"Required where {reveal_invisible_characters(owner[-1])} is sent.")
        for path, value in typed.items():
            holder = self.arguments
            for part in path[:-1]:
                holder = holder.setdefault(part, {})
            holder[path[-1]] = value
        return values

    def set_arguments_from_raw_json(self, text: str) -> None:
        try:
            value = parse_json_for_schema(text, {})
        except ValidationError as problem:
            self.add_error(RAW, problem)
            return
        if not isinstance(value, dict):
            self.add_error(RAW, "The arguments of a tool are a JSON object.")
            return
        self.arguments = value


def has_typed_value_below_path(typed: Iterable[tuple[str, ...]], owner: tuple[str, ...]) -> bool:
    return any(path[: len(owner)] == owner for path in typed)


def build_argument_fields_of_schema(schema: Any) -> list[ArgumentField]:
    """Return the fields of a schema. Raises UnsupportedSchema if a form cannot show it."""
    if not isinstance(schema, dict):
        raise UnsupportedSchema
    definitions = schema.get("$defs") or schema.get("definitions")
    root = resolve_schema(schema, definitions if isinstance(definitions, dict) else {})
    if "properties" not in root and any(name in root for name in ("anyOf", "oneOf", "allOf", "$ref")):
        raise UnsupportedSchema
    arguments = list(
        iterate_argument_fields_of_object(root, definitions if isinstance(definitions, dict) else {}, (), ())
    )
    if len(arguments) > MAX_FIELDS:
        raise UnsupportedSchema
    return arguments


def iterate_argument_fields_of_object(
    schema: Mapping[str, Any],
    definitions: Mapping[str, Any],
    path: tuple[str, ...],
    owners: tuple[bool, ...],
) -> Iterable[ArgumentField]:
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if not isinstance(properties, dict) or len(properties) > MAX_FIELDS:
        raise UnsupportedSchema
    names = {name for name in required if isinstance(name, str)} if isinstance(required, list) else set()
    for name, inner in properties.items():
        resolved = resolve_schema(inner, definitions)
        kind, is_required, place = input_kind_of_schema(resolved), name in names, (*path, name)
        own = resolved.get("properties")
        if kind == "object" and len(place) < MAX_DEPTH and isinstance(own, dict) and own:
            yield from iterate_argument_fields_of_object(resolved, definitions, place, (*owners, is_required))
        else:
            kind = "json" if kind == "object" else kind
            yield ArgumentField(place, kind, resolved, is_required, owners)


def resolve_schema(schema: Any, definitions: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a schema with references resolved, and with a nullable schema replaced by its other alternative.

    Return {} if it is not a schema.
    """
    for _ in range(MAX_DEPTH):
        if not isinstance(schema, dict):
            return {}
        reference = schema.get("$ref")
        if isinstance(reference, str):
            target = definitions.get(reference.rpartition("/")[2]) if reference.startswith("#/") else None
            if not isinstance(target, dict):
                return schema
            schema = target | {name: value for name, value in schema.items() if name != "$ref"}
            continue
        alternatives = schema.get("anyOf") or schema.get("oneOf")
        if isinstance(alternatives, list):
            others = [
                one for one in alternatives if not (isinstance(one, dict) and one.get("type") == "null")
            ]
            if len(others) == 1 and isinstance(others[0], dict):
                schema = others[0] | {
                    name: value for name, value in schema.items() if name not in {"anyOf", "oneOf"}
                }
                continue
        return schema
    return schema if isinstance(schema, dict) else {}


def input_kind_of_schema(schema: Mapping[str, Any]) -> str:
    """Return the kind of field for a schema: a scalar's type, or `choice`, `lines`, `object` or `json`."""
    if "const" in schema:
        return "choice"
    choices = schema.get("enum")
    if isinstance(choices, list) and 0 < len(choices) <= MAX_CHOICES:
        return "choice"
    kind = schema.get("type")
    if isinstance(kind, list):
        kinds = [one for one in kind if one != "null"]
        kind = kinds[0] if len(kinds) == 1 else None
    if "$ref" in schema or "anyOf" in schema or "oneOf" in schema or "allOf" in schema:
        return "json"
    if kind == "array":
        items = schema.get("items")
        return (
            "lines"
            if isinstance(items, dict) and items.get("type") in {"string", "integer", "number"}
            else "json"
        )
    if kind == "object":
        return "object"
    return kind if kind in SCALARS else "json"


def list_allowed_values_of_schema(schema: Mapping[str, Any]) -> list[Any]:
    return [schema["const"]] if "const" in schema else list(schema["enum"])


def build_argument_field(argument: ArgumentField) -> forms.Field:
    schema, kind = argument.schema, argument.kind
    description = schema.get("description")
    text = reveal_invisible_characters(description[:MAX_DESCRIPTION]) if isinstance(description, str) else ""
    help_text = " ".join(part for part in (text, describe_bounds(argument)) if part)
    options: dict[str, Any] = {
        "label": argument.label,
        "required": argument.is_required_at_every_level,
        "help_text": escape(help_text),
        "error_messages": {"required": "The tool requires this argument."},
    }
    default = schema.get("default")
    if kind == "choice":
        values = list_allowed_values_of_schema(schema)
        choices = [(str(index), format_choice(value)) for index, value in enumerate(values)]
        initial = next((str(index) for index, value in enumerate(values) if value == default), "")
        return forms.ChoiceField(choices=[NOT_SENT, *choices], initial=initial, **options)
    if kind == "boolean":
        initial = json.dumps(default) if isinstance(default, bool) else ""
        return forms.ChoiceField(
            choices=[NOT_SENT, ("true", "Yes"), ("false", "No")], initial=initial, **options
        )
    widget: forms.Widget
    if kind in {"integer", "number"}:
        widget = forms.TextInput({"inputmode": "decimal", "autocomplete": "off"})
        initial = json.dumps(default) if isinstance(default, int | float) else ""
    elif kind == "string":
        longest = schema.get("maxLength")
        is_short = (isinstance(longest, int) and longest <= LONG_TEXT) or isinstance(
            schema.get("format"), str
        )
        attributes = {"spellcheck": "false", "autocomplete": "off"}
        widget = forms.TextInput(attributes) if is_short else forms.Textarea(attributes | {"rows": 2})
        initial = default if isinstance(default, str) else ""
    else:
        widget = forms.Textarea({"rows": 3, "spellcheck": "false", "class": "mono"})
        initial = ""
        if default is not None:
            is_lines = kind == "lines" and isinstance(default, list)
            initial = "\n".join(map(str, default)) if is_lines else json.dumps(default, ensure_ascii=False)
    return forms.CharField(strip=False, widget=widget, initial=initial, **options)


def describe_bounds(argument: ArgumentField) -> str:
    """Return a hint on what to type, with the bounds of a number; empty if the field itself shows it."""
    schema = argument.schema
    if argument.kind == "lines":
        return "One per line."
    if argument.kind == "json":
        kind = schema.get("type")
        return f"As JSON ({kind})." if isinstance(kind, str) else "As JSON."
    if argument.kind in {"integer", "number"}:
        least, most = schema.get("minimum"), schema.get("maximum")
        bounds = [f"from {least}"] if isinstance(least, int | float) else []
        bounds += [f"to {most}"] if isinstance(most, int | float) else []
        words = "A whole number" if argument.kind == "integer" else "A number"
        return f"{' '.join([words, *bounds])}."
    return ""


def format_choice(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return reveal_invisible_characters(text)[:LONG_TEXT] or '""'


def parse_argument(argument: ArgumentField, text: str) -> Any:
    """Return the value of a typed text. Raises ValidationError."""
    kind = argument.kind
    if kind == "choice":
        return list_allowed_values_of_schema(argument.schema)[int(text)]
    if kind == "boolean":
        return text == "true"
    if kind == "string":
        text = text.replace("\r\n", "\n")
        longest = argument.schema.get("maxLength")
        if isinstance(longest, int) and len(text) > longest:
            raise ValidationError(f"At most {longest} characters.")
        return text
    if kind in {"integer", "number"}:
        return parse_number_for_schema(text, kind, argument.schema)
    return (
        parse_lines_for_schema(text, argument.schema["items"])
        if kind == "lines"
        else parse_json_for_schema(text, argument.schema)
    )


def parse_lines_for_schema(text: str, item: Mapping[str, Any]) -> list[Any]:
    lines = [line for line in text.replace("\r\n", "\n").split("\n") if line.strip()]
    if item["type"] == "string":
        return lines
    return [parse_number_for_schema(line, item["type"], item) for line in lines]


def parse_json_for_schema(text: str, schema: Mapping[str, Any]) -> Any:
    try:
        value = load_bounded_json(text)
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError) as problem:
        raise ValidationError(f"This is not JSON: {problem}.") from None
    kind = schema.get("type")
    expected_type = {"array": list, "object": dict}.get(kind) if isinstance(kind, str) else None
    if expected_type is not None and not isinstance(value, expected_type):
        raise ValidationError(f"This must be a JSON {kind}.")
    return value


def parse_number_for_schema(text: str, kind: str, schema: Mapping[str, Any]) -> int | float:
    words = "a whole number" if kind == "integer" else "a number"
    try:
        value = json.loads(text.strip())
    except (ValueError, RecursionError):
        value = None
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not is_number or (kind == "integer" and not isinstance(value, int)):
        raise ValidationError(f"{text.strip()[:40]!r} is not {words}.")
    assert isinstance(value, int | float)
    least, most = schema.get("minimum"), schema.get("maximum")
    if isinstance(least, int | float) and value < least:
        raise ValidationError(f"At least {least}.")
    if isinstance(most, int | float) and value > most:
        raise ValidationError(f"At most {most}.")
    return value
