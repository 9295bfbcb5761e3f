"""Validation of a chat message's content: 1 to 20 content blocks, and files given as data URLs in blocks."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote_to_bytes

from coordinator.errors import BadRequest, RequestTooLarge
from coordinator.models.fields import dump_compact_json
from coordinator.secrets.masking import mask_secrets_in_value

MOST_BLOCKS = 20
MOST_CHARACTERS = 1_000_000  # of a message's blocks as JSON, once their files are out of them
MOST_METADATA = 64_000
# Kinds that pages draw; a block of another kind is kept, and shown folded as it is.
KINDS = ("text", "image", "code", "tool_result", "file", "audio")
_DATA_URL = re.compile(r"data:([^;,]*)((?:;[^;,]*)*),(.*)", re.DOTALL)

Block = dict[str, Any]


@dataclass(frozen=True, slots=True)
class EmbeddedFile:
    """A file from a block: its bytes, and the block without them."""

    block: Block
    data: bytes
    mime_type: str
    filename: str


def validate_content_blocks(content: Any, *, files: int = 0) -> list[Block]:
    """Return the content blocks, or raise BadRequest with what is wrong. `files` are sent in addition."""
    if not isinstance(content, list):
        raise BadRequest("content must be an array of content blocks.")
    if not 1 <= len(content) + files <= MOST_BLOCKS:
        raise BadRequest(f"A message must have 1 to {MOST_BLOCKS} content blocks, files included.")
    for number, block in enumerate(content):
        validate_content_block(number, block)
    return content


def validate_content_block(number: int, block: Any) -> None:
    if not isinstance(block, dict) or not isinstance(block.get("type"), str) or not block["type"]:
        raise BadRequest(f"content[{number}] must be an object with a type, such as text.")
    if block["type"] == "text" and not isinstance(block.get("text"), str):
        raise BadRequest(f"content[{number}] is of type text and must have a text.")


def reject_oversized_content(blocks: Sequence[Block]) -> None:
    """Raise RequestTooLarge for blocks of more than MOST_CHARACTERS; long texts are files."""
    if len(dump_compact_json(blocks)) > MOST_CHARACTERS:
        raise RequestTooLarge(
            f"The content is longer than {MOST_CHARACTERS:,} characters: attach long texts as files."
        )


def validate_message_metadata(metadata: Any) -> Any:
    """Return metadata as it may be kept: a JSON object or nothing."""
    if metadata is None:
        return None
    if not isinstance(metadata, dict) or len(dump_compact_json(metadata)) > MOST_METADATA:
        raise BadRequest(f"metadata must be an object of at most {MOST_METADATA:,} characters.")
    return metadata


def extract_embedded_file(number: int, block: Block) -> EmbeddedFile | None:
    """Return the file that a block carries as a data URL or as a base64 source, or None where it carries none.

    Raises BadRequest where it says base64 and is none: a file that vanishes unseen would be worse.
    """
    if block["type"] == "text":
        return None
    source = block.get("source")
    if isinstance(source, Mapping) and source.get("type") == "base64":
        url = f"data:{source.get('media_type', '')};base64,{source.get('data', '')}"
        return parse_data_url_block(number, block, "source", url)
    for name, value in block.items():
        if isinstance(value, str) and value[:5].lower() == "data:" and "," in value:
            return parse_data_url_block(number, block, name, value)
    return None


def parse_data_url_block(number: int, block: Block, field: str, url: str) -> EmbeddedFile:
    match = _DATA_URL.fullmatch(url)
    if match is None:
        raise BadRequest(f"content[{number}].{field} is a data URL that cannot be read.")
    mime_type, parameters, data = match.groups()
    rest = {name: value for name, value in block.items() if name != field}
    filename = next((value for name in ("filename", "name") if isinstance(value := block.get(name), str)), "")
    return EmbeddedFile(rest, decode_data_url_content(number, field, parameters, data), mime_type, filename)


def decode_data_url_content(number: int, field: str, parameters: str, data: str) -> bytes:
    if not parameters.lower().endswith(";base64"):
        return unquote_to_bytes(data)
    try:
        return base64.b64decode("".join(data.split()), validate=True)
    except (binascii.Error, ValueError):
        raise BadRequest(f"content[{number}].{field} says base64 but is not. Nothing was sent.") from None


def build_file_block(block: Block, facts: Mapping[str, Any]) -> Block:
    """Return a block that refers to an attachment: what it said itself, and what is known of its file."""
    kind = block.get("type") or "file"
    if kind == "image" and not str(facts["mime_type"]).startswith("image/"):
        kind = "file"  # drawn as an image it would stay broken for ever
    own_fields = {name: value for name, value in block.items() if name not in ("width", "height")}
    return {**own_fields, **facts, "type": kind}


def masked_message_search_text(content: Any) -> str:
    """Return what a message says in words: its texts, codes and file names, one under the other, without secrets."""
    if not isinstance(content, list):
        return str(mask_secrets_in_value(content)) if isinstance(content, str) else ""
    texts = []
    for block in content:
        if isinstance(block, dict):
            block_texts = (block.get(name) for name in ("text", "code", "content", "filename", "alt"))
            texts += [value for value in block_texts if isinstance(value, str) and value]
    return str(mask_secrets_in_value("\n".join(texts)))
