"""Validates a run's parameters against a foreign JSON Schema. Imports nothing of Django or of our data.

A schema of two kilobytes can take years: references that double at each level, patterns that
backtrack, evaluations that are repeated for each value. `is_schema_validation_bounded` says for which schemas the work
is bounded by their size and the parameters'; the others are validated in a child process that the kernel ends in time
(runs.schema_jobs).
"""

from __future__ import annotations

from itertools import islice
from typing import Any

MAX_ERRORS = 20
MAX_MESSAGE_LENGTH = 1_000  # characters; the library repeats the whole value in its message
# A runner's pattern may take for ever on the text that a client gives: these are left to the agent itself.
NOT_CHECKED = ("pattern", "patternProperties", "format")
# Keywords with which an evaluation may take more steps than there are pairs of a value of the schema and one of the
# parameters: they lead elsewhere in the schema, compare values with each other, or search for a pattern.
UNBOUNDED = frozenset(
    {
        "$ref", "$dynamicRef", "$recursiveRef", "$id", "$anchor", "$dynamicAnchor",
        "patternProperties", "uniqueItems", "unevaluatedItems", "unevaluatedProperties",
    }
)  # fmt: skip
QUICK_STEPS = 5_000  # pairs of a value of the schema and a value of the parameters: about 20 ms
QUICK_BYTES = 4_000_000  # values of the schema times bytes of the parameters, which each error may copy


class InapplicableSchema(Exception):
    """The schema is none, or refers to what is not in it."""


def is_schema_validation_bounded(parameters: dict[str, Any], schema: Any, parameters_size: int) -> bool:
    """Return whether the work of `find_schema_errors` is bounded, so that it needs no child process.

    `parameters_size` is their length as JSON, in bytes.
    """
    most = min(QUICK_STEPS, QUICK_BYTES // max(1, parameters_size))
    size = count_json_values_or_none(schema, most, refused=UNBOUNDED)
    return size is not None and count_json_values_or_none(parameters, most // max(1, size)) is not None


def count_json_values_or_none(value: Any, most: int, *, refused: frozenset[str] = frozenset()) -> int | None:
    """Return how many values and keys there are; None where more than `most`, or a key is one of `refused`."""
    count, pending = 0, [value]
    while pending:
        item = pending.pop()
        count += 1
        if isinstance(item, dict):
            if not refused.isdisjoint(item):
                return None
            count += len(item)
            pending += item.values()
        elif isinstance(item, list):
            pending += item
        if count + len(pending) > most:
            return None
    return count


def find_schema_errors(parameters: Any, schema: Any) -> list[dict[str, str]]:
    """Return what in the parameters does not meet the schema, at most MAX_ERRORS. Raises InapplicableSchema."""
    # Loaded by the first who needs it: a restart is short without.
    from jsonschema import Draft202012Validator, validators  # noqa: PLC0415
    from referencing import Registry  # noqa: PLC0415

    checks = {
        name: check for name, check in Draft202012Validator.VALIDATORS.items() if name not in NOT_CHECKED
    }
    validator = validators.create(Draft202012Validator.META_SCHEMA, checks)
    try:
        # An empty registry: a schema's $ref is looked up in the schema alone, never fetched.
        errors = list(islice(validator(schema, registry=Registry()).iter_errors(parameters), MAX_ERRORS))
        return [
            {
                "path": shorten_error_text(error.json_path),
                "message": shorten_error_text(error.message),
                "schema_path": shorten_error_text(".".join(str(part) for part in error.absolute_schema_path)),
            }
            for error in errors
        ]
    except Exception as problem:
        raise InapplicableSchema(str(problem).partition("\n")[0][:200] or type(problem).__name__) from None


def shorten_error_text(text: str) -> str:
    return text if len(text) <= MAX_MESSAGE_LENGTH else f"{text[:MAX_MESSAGE_LENGTH]}…"
