"""Results of servers cut to their limit, and with secrets masked. Pure: the caller stores the rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from coordinator.lib import json_bounds
from coordinator.mcp.gateway.call_limits import CallLimits
from coordinator.mcp.gateway.outputs import BLOCKS
from coordinator.secrets.masking import SecretMasker

SCHEME = "signalbox://results/"
MIN_RESULT_BYTES = 2_048
MAX_RESULT_BYTES = 16 * 1024 * 1024
MAX_STORED_CHARACTERS = 4 * 1024 * 1024  # of the rest of one result
NOTE_BYTES = 1_024  # of a limit, for what is said of the rest
MIN_STRING_CHARACTERS = 64  # to which strings of structured content are cut at most
MAX_NESTED_BYTES = 256  # of a block around its text
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


@dataclass(frozen=True, slots=True)
class LimitedResult:
    """A response as it reaches its client. `rest` is to be stored under the id that the response names."""

    response: bytes
    rest: str | None = None


def build_limited_result(response: bytes, limits: CallLimits, stored_id: str) -> LimitedResult:
    """Return a response within its limits; `stored_id` is where the rest will be read, if there is one."""
    max_bytes = limits.result_bytes
    is_long = max_bytes is not None and len(response) > max_bytes
    if not is_long and not limits.masks_secrets:
        return LimitedResult(response)
    try:
        value = _decode(response)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return LimitedResult(response)  # which its client cannot read either
    if not isinstance(value, dict):
        return LimitedResult(response)
    if limits.masks_secrets:
        masker = SecretMasker()
        for name in ("result", "error"):
            if name in value:
                value[name] = masker.mask_value(value[name])
        if not masker.count and not masker.cut and not is_long:
            return LimitedResult(response)
    result = value.get("result")
    inner = result.get("result") if isinstance(result, dict) else None
    target = inner if isinstance(inner, dict) else result  # a task's result is within the task
    rest = None
    if is_long and max_bytes is not None and isinstance(target, dict):
        rest = pop_overlong_rest_or_none(target, max_bytes, stored_id)
    return LimitedResult(_encode(value), rest)


def pop_overlong_rest_or_none(result: dict[str, Any], max_bytes: int, stored_id: str) -> str | None:
    """Shorten a result in place; return what was cut off. None where it has no blocks that could be cut."""
    name = next((name for name in BLOCKS if isinstance(result.get(name), list)), None)
    if name is None:
        return None
    bytes_left = max(max_bytes - NOTE_BYTES, MIN_RESULT_BYTES // 2)
    structured_text, is_left_out = None, False
    if (structured := result.get("structuredContent")) is not None:
        encoded = _encode(structured)
        if len(encoded) > bytes_left // 2:
            texts = [
                holder["text"]
                for block in result[name]
                if (holder := find_object_with_block_text(block)) is not None
            ]
            is_repeated = structured == {"result": "".join(texts)} or is_text_copy_of_structured_content(
                structured, texts
            )
            structured_text = None if is_repeated else encoded.decode()
            shortened = shorten_json_strings_or_none(structured, bytes_left // 2)
            if shortened is None:  # clients refuse a result without it, unless it is an error
                is_left_out = result["isError"] = True
                del result["structuredContent"]
                encoded = b""
            else:
                result["structuredContent"] = shortened
                encoded = _encode(shortened)
        bytes_left -= len(encoded)
    result.pop("_meta", None)
    shown_blocks, rest = split_content_blocks_at_limit(result[name], bytes_left)
    if structured_text is not None:
        rest.append(structured_text)
    cut_text = "\n\n".join(rest)
    dropped = max(0, len(cut_text) - MAX_STORED_CHARACTERS)
    cut_text = cut_text[:MAX_STORED_CHARACTERS]
    result[name] = [
        *shown_blocks,
        *build_truncation_notice_blocks(name, stored_id, len(cut_text), dropped, is_left_out),
    ]
    return cut_text


def is_text_copy_of_structured_content(structured: Any, texts: list[str]) -> bool:
    """Say whether the one text of a result is its structured content again, as JSON, as MCP recommends."""
    if len(texts) != 1:
        return False
    try:
        raw = texts[0].encode()
        json_bounds.require_json_bounds(raw)
        return bool(_decode(raw) == structured)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False


def shorten_json_strings_or_none(value: Any, max_bytes: int) -> Any:
    """Return a JSON value whose long strings are cut so that it fits; None where that is not enough.

    Its schema holds for it still, unless that says how long strings are or what they look like.
    """
    length = max_bytes
    while length >= MIN_STRING_CHARACTERS:
        shortened = shorten_json_strings(value, length)
        if len(_encode(shortened)) <= max_bytes:
            return shortened
        length //= 2
    return None


def shorten_json_strings(value: Any, length: int) -> Any:
    if isinstance(value, str):
        return value[:length]
    if isinstance(value, list):
        return [shorten_json_strings(item, length) for item in value]
    if isinstance(value, dict):
        return {name: shorten_json_strings(item, length) for name, item in value.items()}
    return value


def split_content_blocks_at_limit(blocks: list[Any], bytes_left: int) -> tuple[list[Any], list[str]]:
    """Return the blocks that fit into `bytes_left` bytes, the last of them shortened, and the others as texts."""
    shown_blocks: list[Any] = []
    rest: list[str] = []
    for block in blocks:
        encoded = _encode(block)
        if not rest and len(encoded) <= bytes_left:
            shown_blocks.append(block)
            bytes_left -= len(encoded)
            continue
        holder = find_object_with_block_text(block)
        if holder is None:
            rest.append(encoded.decode())
            continue
        text = holder["text"]
        if (
            not rest
            and bytes_left > MAX_NESTED_BYTES
            and len(encoded) - len(_encode(text)) <= MAX_NESTED_BYTES
        ):
            head = cut_text_to_bytes(text, bytes_left - MAX_NESTED_BYTES)
            holder["text"] = head
            shown_blocks.append(block)
            text = text[len(head) :]
        rest.append(text)
    return shown_blocks, rest


def find_object_with_block_text(block: Any) -> dict[str, Any] | None:
    """Return what holds the text of a block of a call's, a resource's or a prompt's result; None where nothing does."""
    inner = block
    for _ in range(2):
        if not isinstance(inner, dict):
            return None
        if isinstance(inner.get("text"), str):
            return inner
        inner = inner.get("content", inner.get("resource"))
    return inner if isinstance(inner, dict) and isinstance(inner.get("text"), str) else None


def cut_text_to_bytes(text: str, max_bytes: int) -> str:
    """Return as much of a text as takes at most so many bytes as JSON."""
    head = text[:max_bytes]
    while (size := len(_encode(head))) > max_bytes and head:
        head = head[: min(len(head) - 1, len(head) * max_bytes // size)]
    return head


def build_truncation_notice_blocks(
    name: str, stored_id: str, left: int, dropped: int, is_error: bool
) -> list[Any]:
    """Return blocks that say where the rest is read."""
    uri = f"{SCHEME}{stored_id}/0"
    text = (
        f"[Signalbox: the result is longer than its limit. {left:,} more characters: read the resource {uri}"
    )
    text += f"; the last {dropped:,} were left out.]" if dropped else ".]"
    if is_error:
        text += " [The tool ran. Its structured result is too long; do not call it again for that reason.]"
    if name == "contents":
        return [{"uri": uri, "mimeType": "text/plain", "text": text}]
    if name == "messages":
        return [{"role": "user", "content": {"type": "text", "text": text}}]
    link = {"type": "resource_link", "uri": uri, "name": "rest of the result", "mimeType": "text/plain"}
    return [{"type": "text", "text": text}, link]


def parse_result_uri_or_none(uri: Any) -> tuple[str, int] | None:
    """Return which stored result an address names, and from which character on; None where it names none."""
    if not isinstance(uri, str) or not uri.startswith(SCHEME) or len(uri) > 200:
        return None
    stored_id, _, offset = uri.removeprefix(SCHEME).partition("/")
    if not stored_id.isascii() or not stored_id.isalnum() or not offset.isascii() or not offset.isdigit():
        return None
    return stored_id, int(offset[:12])


def build_stored_result_page(stored_id: str, text: str, offset: int, part_bytes: int) -> dict[str, Any]:
    """Return one part of a stored result as `resources/read` answers it, and where the next one is."""
    uri = f"{SCHEME}{stored_id}/{offset}"
    part = cut_text_to_bytes(text[offset:], max(part_bytes - NOTE_BYTES, MIN_RESULT_BYTES // 2))
    contents = [{"uri": uri, "mimeType": "text/plain", "text": part}]
    next_offset = offset + len(part)
    if next_offset < len(text):
        next_uri = f"{SCHEME}{stored_id}/{next_offset}"
        note = f"[Signalbox: {len(text) - next_offset:,} more characters: read the resource {next_uri}.]"
        contents.append({"uri": next_uri, "mimeType": "text/plain", "text": note})
    return {"contents": contents}
