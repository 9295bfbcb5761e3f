"""Masking of secrets in imported rows, as at the endpoints, and comparison of rows without the masks' digits.

A mask's digits depend on this installation's key. So that an import can be repeated after that key, or the setting, has
changed, rows are compared by what their masks say without those digits.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any

from django.conf import settings

from coordinator.chat import content as chat_content
from coordinator.errors import SignalboxError
from coordinator.importing.column_conversion import model_name_of_table
from coordinator.importing.source_database import Row
from coordinator.models.fields import dump_compact_json
from coordinator.runs.statuses import OPEN
from coordinator.secrets import is_runner_variable_placeholder, is_secret_key_or_url_password
from coordinator.secrets import masked_columns as secret_columns
from coordinator.secrets.masking import MASK, SecretMasker

# What people judge is shown with whatever could run or lead elsewhere.
JUDGED = frozenset({"permission_requests"})
MASKED_CHAT_COLUMNS = ("content", "metadata")  # of a chat message
# The columns of a name and of its value, where the name says whether the value is a secret.
NAMED_VALUES = {"plugin_configs": ("config_key", "config_value"), "plugin_data": ("key", "value")}


@lru_cache(maxsize=64)
def find_table_columns_to_mask(table: str) -> frozenset[str]:
    """Return a table's columns that are masked before they are stored."""
    listed = secret_columns.COLUMNS.get(model_name_of_table(table), {})
    names = set(listed.get(secret_columns.MASKED, "").split())
    if table == "runs":
        names.add("prompt")
    names.update(NAMED_VALUES.get(table, ())[1:])
    return frozenset(names | set(MASKED_CHAT_COLUMNS)) if table == "chat_messages" else frozenset(names)


def is_masking_on() -> bool:
    return bool(settings.MASK_SECRETS)


def mask_row_and_count_secrets(table: str, row: Row) -> int:
    """Mask what of a row would be masked at the endpoints, in place; return how many secrets."""
    if not is_masking_on():
        return 0
    mask = SecretMasker(judged=table in JUDGED)
    for name in find_row_columns_to_mask(table, row):
        row[name] = mask_row_text(table, row, name, mask)
    return mask.count


def find_row_columns_to_mask(table: str, row: Row) -> Collection[str]:
    if table == "chat_messages" and row.get("source") != "agent":
        return ()  # what people say, the agent must read as it was said
    names = [name for name in find_table_columns_to_mask(table) if isinstance(row.get(name), str)]
    if table == "runs" and row.get("status") in OPEN:
        names = [name for name in names if name != "prompt"]
    return names


def mask_row_text(table: str, row: Mapping[str, Any], name: str, mask: SecretMasker) -> str:
    """Return the text of a row's column without secrets, and without all of it where its name says it is one."""
    text: str = row[name]
    masked_text = mask_imported_text(text, mask, of_chat=table == "chat_messages" and name == "content")
    if (
        masked_text != text
        or table not in NAMED_VALUES
        or is_runner_variable_placeholder(text)
        or MASK.fullmatch(text)
    ):
        return masked_text
    key = row.get(NAMED_VALUES[table][0])
    if not text or not is_secret_key_or_url_password(key if isinstance(key, str) else None, text):
        return text
    return mask.mask_entire_text_as_secret(text, "value")


def mask_imported_text(text: str, mask: SecretMasker, *, of_chat: bool) -> str:
    """Return a text without secrets: what is JSON as JSON, and byte for byte as it was where it holds none."""
    if text[:1] not in '{["':
        return mask.mask_text(text) or ""
    before = mask.count
    try:
        value = json.loads(text)
        masked_value = (
            [mask_imported_block(n, block, mask) for n, block in enumerate(value)]
            if of_chat
            else mask.mask_value(value)
        )
        return text if mask.count == before else dump_compact_json(masked_value)
    except (ValueError, TypeError, RecursionError, SignalboxError):
        return mask.mask_text(text) or ""


def mask_imported_block(number: int, block: Any, mask: SecretMasker) -> Any:
    """Return a block of a message without secrets; one that carries a file as it is: random bytes are no text."""
    if (
        isinstance(block, dict)
        and isinstance(block.get("type"), str)
        and chat_content.extract_embedded_file(number, block)
    ):
        return block
    return mask.mask_value(block)


def mask_rejected_row(table: str, row: Mapping[str, Any]) -> Row:
    """Return a row as it is kept aside: where the endpoints mask its table, with no secret in any text."""
    if not is_masking_on() or not find_table_columns_to_mask(table):
        return dict(row)
    mask = SecretMasker()
    masked_row = {
        name: mask.mask_text(value) if isinstance(value, str) else value for name, value in row.items()
    }
    for name in NAMED_VALUES.get(table, ())[1:]:
        if isinstance(row.get(name), str):
            masked_row[name] = mask_row_text(table, row, name, mask)
    return masked_row


def normalize_masks_for_comparison(table: str, row: Row) -> Row:
    """Return a row with each secret and each mask as the same words, whatever the key and the setting are."""
    names = find_row_columns_to_mask(table, row)
    if not names:
        return row
    mask = SecretMasker(judged=table in JUDGED)
    same = {
        name: MASK.sub(
            lambda found: found.group().rsplit(" ", 1)[0] + "]",
            mask_row_text(table, row, name, mask),
        )
        for name in names
    }
    return {**row, **same}
