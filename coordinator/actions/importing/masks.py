"""Secrets in imported rows: masked as at the doors, and left out of what is compared.

A mask's digits follow from this installation's key. So that an import can be repeated after that key, or the
setting, has changed, rows are compared by what their masks say without those digits.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any

from django.conf import settings

from coordinator.chat import content as chat_content
from coordinator.errors import SignalboxError
from coordinator.importing.foreign import Row
from coordinator.importing.values import model_name
from coordinator.models.fields import dump
from coordinator.runs.statuses import OPEN
from coordinator.secrets import masked_columns as secret_columns
from coordinator.secrets.masking import MASK, Masker

# What people judge is shown with whatever could run or lead elsewhere.
JUDGED = frozenset({"permission_requests"})
SAID = ("content", "metadata")  # of a chat message


@lru_cache(maxsize=64)
def columns_of(table: str) -> frozenset[str]:
    """Return a table's columns that are masked before they are stored."""
    listed = secret_columns.COLUMNS.get(model_name(table), {})
    names = set(listed.get(secret_columns.MASKED, "").split())
    if table == "runs":
        names.add("prompt")
    return frozenset(names | set(SAID)) if table == "chat_messages" else frozenset(names)


def is_on() -> bool:
    return bool(settings.MASK_SECRETS)


def mask_row(table: str, row: Row) -> int:
    """Mask what of a row would be masked at the doors, in place; return how many secrets."""
    if not is_on():
        return 0
    mask = Masker(judged=table in JUDGED)
    for name in _of_row(table, row):
        row[name] = _masked(row[name], mask, of_chat=table == "chat_messages" and name == "content")
    return mask.count


def _of_row(table: str, row: Row) -> Collection[str]:
    if table == "chat_messages" and row.get("source") != "agent":
        return ()  # what people say, the agent must read as it was said
    names = [name for name in columns_of(table) if isinstance(row.get(name), str)]
    if table == "runs" and row.get("status") in OPEN:
        names = [name for name in names if name != "prompt"]
    return names


def _masked(text: str, mask: Masker, *, of_chat: bool) -> str:
    """Return a text without secrets: what is JSON as JSON, and byte for byte as it was where it holds none."""
    if text[:1] not in '{["':
        return mask.text(text) or ""
    before = mask.count
    try:
        value = json.loads(text)
        shown = [_block(n, one, mask) for n, one in enumerate(value)] if of_chat else mask.value(value)
        return text if mask.count == before else dump(shown)
    except (ValueError, TypeError, RecursionError, SignalboxError):
        return mask.text(text) or ""


def _block(number: int, block: Any, mask: Masker) -> Any:
    """Return a block of a message without secrets; one that carries a file as it is: random bytes are no text."""
    if (
        isinstance(block, dict)
        and isinstance(block.get("type"), str)
        and chat_content.embedded(number, block)
    ):
        return block
    return mask.value(block)


def without_secrets(table: str, row: Mapping[str, Any]) -> Row:
    """Return a row as it is kept aside: where the doors mask its table, with no secret in any text."""
    if not is_on() or not columns_of(table):
        return dict(row)
    mask = Masker()
    return {name: mask.text(value) if isinstance(value, str) else value for name, value in row.items()}


def to_compare(table: str, row: Row) -> Row:
    """Return a row with each secret and each mask as the same words, whatever the key and the setting are."""
    names = _of_row(table, row)
    if not names:
        return row
    mask = Masker(judged=table in JUDGED)
    same = {
        name: MASK.sub(
            lambda found: found.group().rsplit(" ", 1)[0] + "]", _compared(row[name], mask, table, name)
        )
        for name in names
    }
    return {**row, **same}


def _compared(text: str, mask: Masker, table: str, name: str) -> str:
    return _masked(text, mask, of_chat=table == "chat_messages" and name == "content")
