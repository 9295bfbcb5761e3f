"""JSON values as readable text, in bounded time: small ones are indented, large ones are on one line."""

from __future__ import annotations

import json
from typing import Any

INDENTED_UP_TO = 50_000  # nested values; Python's indenting encoder is slow
DEEPEST = 100
TOO_DEEP = "(nested deeper than is shown)"
_BASE64 = frozenset({"data", "blob", "base64", "signature"})


class ValueTooLarge(Exception):
    pass


def format_json(value: Any) -> str:
    """Return a JSON value indented, or on one line if it is too large.

    A text (UnreadableText too) is unchanged.
    """
    if isinstance(value, str):
        return value
    try:
        return json.dumps(
            BoundedCopy(INDENTED_UP_TO).copy_value(value), indent=2, ensure_ascii=False, default=str
        )
    except ValueTooLarge:
        return format_json_line(value)


def format_json_beginning_and_completeness(value: Any, *, most: int = INDENTED_UP_TO) -> tuple[str, bool]:
    """Return a JSON value indented, and whether it is complete. Long base64 texts are replaced by their size.

    At most `most` nested values are written; the others are left out.
    """
    copy = BoundedCopy(most, shorten_base64=True, cut=True)
    text = json.dumps(copy.copy_value(value), indent=2, ensure_ascii=False, default=str)
    return text, copy.left >= 0


def format_json_line(value: Any) -> str:
    """Return a JSON value on one line. A text (UnreadableText too) is returned unchanged."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except RecursionError:
        return TOO_DEEP


class BoundedCopy:
    """Copies a value up to `left` nested values and DEEPEST levels.

    Beyond these limits, `copy_value` leaves values out with `cut`, and raises ValueTooLarge without it.
    """

    def __init__(self, left: int, *, shorten_base64: bool = False, cut: bool = False) -> None:
        self.left = left
        self.shorten_base64 = shorten_base64
        self.cut = cut

    def copy_value(self, value: Any, depth: int = 0) -> Any:
        self.left -= 1
        if self.left < 0 and not self.cut:
            raise ValueTooLarge
        if not isinstance(value, dict | list) or not value:
            return value
        if depth >= DEEPEST:
            return self.too_deep_placeholder_or_raise()
        if isinstance(value, list):
            return [
                self.copy_value(inner, depth + 1) for inner in value if self.continue_or_record_truncation()
            ]
        return {
            key: self.copied_field_value(key, inner, depth)
            for key, inner in value.items()
            if self.continue_or_record_truncation()
        }

    def too_deep_placeholder_or_raise(self) -> str:
        if not self.cut:
            raise ValueTooLarge
        return TOO_DEEP

    def continue_or_record_truncation(self) -> bool:
        if self.left > 0 or not self.cut:
            return True
        self.left = -1
        return False

    def copied_field_value(self, key: Any, inner: Any, depth: int) -> Any:
        if self.shorten_base64 and is_long_base64(key, inner):
            self.left -= 1
            return describe_text_size(inner)
        return self.copy_value(inner, depth + 1)


def replace_long_base64(value: Any) -> Any:
    """Return a JSON value with long base64 texts replaced by their size.

    Values deeper than DEEPEST are unchanged.
    """
    return replace_base64_to_depth(value, DEEPEST)


def replace_base64_to_depth(value: Any, depth: int) -> Any:
    if depth == 0:
        return value
    if isinstance(value, dict):
        return {
            key: describe_text_size(inner)
            if is_long_base64(key, inner)
            else replace_base64_to_depth(inner, depth - 1)
            for key, inner in value.items()
        }
    return (
        [replace_base64_to_depth(inner, depth - 1) for inner in value] if isinstance(value, list) else value
    )


def is_long_base64(key: Any, value: Any) -> bool:
    return key in _BASE64 and isinstance(value, str) and len(value) > 200


def describe_text_size(text: str) -> str:
    return f"({len(text):,} characters)"
