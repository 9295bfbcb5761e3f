"""Validates parameters in the sandbox's child process. Imports nothing of Django or of our data."""

from __future__ import annotations

import json

from coordinator.runs.schemas import Inapplicable, validation_errors

Answer = tuple[dict[str, object], bytes]


def validate(_facts: dict[str, object], body: bytes) -> Answer:
    """Answer with the validation errors, or with why the schema is inapplicable."""
    order = json.loads(body)
    try:
        errors = validation_errors(order["parameters"], order["schema"])
    except Inapplicable as problem:
        return {"inapplicable": str(problem)}, b""
    return {}, json.dumps(errors).encode()


JOBS = {"validate": validate}

# What the libraries load late must be there before the child is confined: it opens no file from then on.
validation_errors({"a": 1}, {"$ref": "#/$defs/a", "$defs": {"a": {"properties": {"a": {"type": "string"}}}}})
