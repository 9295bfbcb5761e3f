"""Redaction of secrets in servers' output outside the protocol, which agents and pages are shown."""

from __future__ import annotations

import json
from collections.abc import Mapping

from coordinator.secrets.masking import mask_secrets_in_value

SHORTEST = 4  # characters of a variable's value that is looked for: a shorter one occurs in every other word


def redact_server_output(text: str, environment: Mapping[str, str]) -> str:
    """Return a text with the values of a server's own variables, and what looks like a secret, masked.

    The values are credentials whatever they look like, so they go also where masking is switched off.
    """
    spelt = {
        spelling: name
        for name, value in environment.items()
        for spelling in list_json_and_line_spellings(value)
    }
    for spelling in sorted(spelt, key=len, reverse=True):
        text = text.replace(spelling, f"[masked: {spelt[spelling]}]")
    return str(mask_secrets_in_value(text))


def list_json_and_line_spellings(value: str) -> list[str]:
    """Return the forms of a value in a text: whole, as in JSON, and each of its lines."""
    spellings = [value, json.dumps(value)[1:-1], *value.splitlines()]
    return [spelling.strip() for spelling in spellings if len(spelling.strip()) >= SHORTEST]
