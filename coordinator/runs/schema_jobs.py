"""Validates parameters in the sandbox's child process. Imports nothing of Django or of our data."""

from __future__ import annotations

import json

from coordinator.runs.schemas import InapplicableSchema, find_schema_errors

Answer = tuple[dict[str, object], bytes]


def validate_parameters_job(_facts: dict[str, object], body: bytes) -> Answer:
    """Answer with the validation errors, or with why the schema is inapplicable."""
    order = json.loads(body)
    try:
        errors = find_schema_errors(order["parameters"], order["schema"])
    except InapplicableSchema as problem:
        return {"inapplicable": str(problem)}, b""
    return {}, json.dumps(errors).encode()


JOBS = {"validate": validate_parameters_job}

# What the libraries load late must be there before the child is confined: it opens no file from then on.
find_schema_errors({"a": 1}, {"$ref": "#/$defs/a", "$defs": {"a": {"properties": {"a": {"type": "string"}}}}})
