"""Validation errors of events, in the recorded 422 form: each with its type, location, message and input.

Events are decoded by msgspec, which is fast and strict but stops at the first error. Only a body that it
refuses comes here: pydantic then finds all errors, or accepts what the recorded server accepted (`"5"` for 5).
"""

from __future__ import annotations

import json
import math
from typing import Any, get_type_hints

import msgspec
import pydantic

from coordinator.errors import UnprocessableRequest
from coordinator.lib.json_bounds import DEEPEST
from coordinator.sessions.events import NewEvent

BRACKETS_WORTH_A_LOOK = DEEPEST

Fault = dict[str, Any]
JsonPath = tuple[str | int, ...]
_decode = msgspec.json.Decoder(NewEvent).decode


def build_event_pydantic_model() -> type[pydantic.BaseModel]:
    """Return the event's wire form for pydantic, for its messages. The source is not the caller's to say."""
    types = get_type_hints(NewEvent, include_extras=True)
    fields: dict[str, Any] = {
        field.name: (types[field.name], ... if field.required else field.default)
        for field in msgspec.structs.fields(NewEvent)
        if field.name != "source"
    }
    return pydantic.create_model("Event", **fields)


_Event = build_event_pydantic_model()


def parse_new_event(text: bytes | msgspec.Raw, path: JsonPath = ("body",)) -> NewEvent:
    """Return the event that `text` holds.

    Raises UnprocessableRequest with every fault, `place` first in each one's loc.
    """
    try:
        event = _decode(text)
        if is_json_possibly_deep(text):
            require_storable_value(msgspec.json.decode(text), (), 0)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, UnstorableValue):
        event = parse_event_with_pydantic(bytes(text), path)
    event.source = "executor"  # not for the caller to say
    return event


def is_json_possibly_deep(text: bytes | msgspec.Raw) -> bool:
    raw = bytes(text)
    return raw.count(b"[") + raw.count(b"{") > BRACKETS_WORTH_A_LOOK


class UnstorableValue(Exception):
    """A value that JSON can write and Signalbox cannot keep."""

    def __init__(self, path: JsonPath, message: str) -> None:
        self.place = path
        self.message = message


def parse_event_with_pydantic(raw: bytes, path: JsonPath) -> NewEvent:
    value = parse_json_body(raw, path)
    try:
        require_storable_value(value, (), 0)
        model = _Event.model_validate(value)
    except UnstorableValue as unfit:
        validation_error = {
            "type": "value_error",
            "loc": [*path, *unfit.place],
            "msg": unfit.message,
            "input": None,
        }
        raise UnprocessableRequest([validation_error]) from None
    except pydantic.ValidationError as problem:
        raise UnprocessableRequest(
            [build_event_validation_error(dict(error), path) for error in problem.errors(include_url=False)]
        ) from None
    return NewEvent(**model.model_dump())


def build_event_validation_error(error: dict[str, Any], path: JsonPath) -> Fault:
    validation_error = {
        "type": error["type"],
        "loc": [*path, *error["loc"]],
        "msg": error["msg"],
        "input": error["input"],
    }
    if "ctx" in error:
        validation_error["ctx"] = {name: str(value) for name, value in error["ctx"].items()}
    return validation_error


def parse_json_body(raw: bytes, path: JsonPath = ("body",)) -> Any:
    """Return decoded JSON. Raises UnprocessableRequest with a `json_invalid` fault that names the position."""
    try:
        return json.loads(raw.decode(), parse_constant=refuse_json_constant)
    except json.JSONDecodeError as problem:
        raise UnprocessableRequest([build_json_invalid_error(path, problem.pos, problem.msg)]) from None
    except UnicodeDecodeError as problem:
        raise UnprocessableRequest(
            [build_json_invalid_error(path, problem.start, "The body is not UTF-8")]
        ) from None
    except RecursionError:
        raise UnprocessableRequest(
            [build_json_invalid_error(path, 0, f"Nested deeper than {DEEPEST} levels")]
        ) from None
    except ValueError as problem:
        raise UnprocessableRequest(
            [build_json_invalid_error(path, 0, str(problem).partition(";")[0])]
        ) from None


def refuse_json_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def build_json_invalid_error(path: JsonPath, position: int, message: str) -> Fault:
    return {
        "type": "json_invalid",
        "loc": [*path, position],
        "msg": "JSON decode error",
        "input": {},
        "ctx": {"error": message},
    }


def require_storable_value(value: Any, path: JsonPath, depth: int) -> None:
    """Raise _Unfit at the first number, text or depth that cannot be kept faithfully on both engines."""
    if depth > DEEPEST:
        raise UnstorableValue(path[:3], f"Nested deeper than {DEEPEST} levels")
    if isinstance(value, str):
        require_storable_text(value, path)
    elif isinstance(value, float) and not math.isfinite(value):
        raise UnstorableValue(path, "Number out of range")
    elif isinstance(value, dict):
        for name, item in value.items():
            require_storable_text(name, path)
            require_storable_value(item, (*path, name), depth + 1)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            require_storable_value(item, (*path, index), depth + 1)


def require_storable_text(text: str, path: JsonPath) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UnstorableValue(path, "Text holds a lone surrogate") from None
