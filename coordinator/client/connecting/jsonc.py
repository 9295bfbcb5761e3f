"""JSON with comments and trailing commas, edited in place: what is not meant to change keeps every byte. Pure.

Agents' settings are written by people: with comments, tabs, CRLF, a byte order mark. So an edit is made in the text,
at the place that the parser names, in the indentation around it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

DEEPEST = 100
LARGEST = 4 << 20  # characters
MAX_VALUES = 50_000  # in a file; an agent's settings have some hundreds, and each edit reads all of them

_BLANK = re.compile(r"(?:[ \t\r\n]+|//[^\r\n]*|/\*.*?\*/)*", re.DOTALL)
_ON_THIS_LINE = re.compile(r"(?:[ \t]+|/\*[^\r\n]*?\*/)*(?://[^\r\n]*)?")
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"')
_SCALAR = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null")
_INDENT = re.compile(r"[ \t]*")

Path = Sequence[str | int]


class UnreadableSettings(Exception):
    """The text is no JSON, not even with comments; the text says where and why."""


@dataclass(slots=True)
class JsonNode:
    """A value and its place: `text[start:end]`.

    Of an object `items` are its members' values, of an array its elements. `keys` and `begins` belong to the items: a
    member's name, and where the item begins (a member's at its name). `comma` says that one follows the last item.
    """

    kind: str  # "object", "array" or "scalar"
    start: int
    end: int = 0
    value: Any = None  # a scalar's
    items: list[JsonNode] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    begins: list[int] = field(default_factory=list)
    comma: bool = False

    def find_member_or_element_index(self, step: str | int) -> int | None:
        """Return the place of a member (of several of one name the last, which counts) or of an element."""
        if isinstance(step, int):
            return step if self.kind == "array" and 0 <= step < len(self.items) else None
        positions = [at for at, key in enumerate(self.keys) if key == step]
        return positions[-1] if self.kind == "object" and positions else None

    def to_python_value(self) -> Any:
        """Return the value as Python knows it."""
        if self.kind == "object":
            return {key: item.to_python_value() for key, item in zip(self.keys, self.items, strict=True)}
        return [item.to_python_value() for item in self.items] if self.kind == "array" else self.value


@lru_cache(maxsize=2)
def parse_jsonc(text: str) -> JsonNode:
    """Return the root, which nobody may change. Raises UnreadableSettings."""
    if len(text) > LARGEST:
        raise UnreadableSettings(f"it is larger than {LARGEST >> 20} MB")
    reader = JsoncParser(text)
    root = reader.parse_json_node(reader.find_end_of_blanks(text.startswith("\ufeff")), 0)
    if reader.find_end_of_blanks(root.end) != len(text):
        raise reader.build_syntax_error(reader.find_end_of_blanks(root.end), "something follows the end")
    return root


def load_jsonc_value(text: str) -> Any:
    """Return the value of the text. Raises UnreadableSettings."""
    return parse_jsonc(text).to_python_value()


class JsoncParser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.count = 0

    def build_syntax_error(self, at: int, reason: str) -> UnreadableSettings:
        line = self.text.count("\n", 0, at) + 1
        return UnreadableSettings(f"line {line}, column {at - self.text.rfind(chr(10), 0, at)}: {reason}")

    def find_end_of_blanks(self, at: int) -> int:
        match = _BLANK.match(self.text, at)
        return match.end() if match else at

    def parse_json_node(self, at: int, depth: int) -> JsonNode:
        if depth > DEEPEST:
            raise self.build_syntax_error(at, "it is nested too deeply")
        self.count += 1
        if self.count > MAX_VALUES:
            raise UnreadableSettings(f"it has more than {MAX_VALUES:,} values")
        sign = self.text[at : at + 1]
        if sign == "{":
            return self.parse_json_container(JsonNode("object", at), "}", depth)
        if sign == "[":
            return self.parse_json_container(JsonNode("array", at), "]", depth)
        match = _STRING.match(self.text, at) or _SCALAR.match(self.text, at)
        if match is None:
            raise self.build_syntax_error(at, "a value is missing" if sign else "the text ends too early")
        return JsonNode("scalar", at, match.end(), json.loads(match.group()))

    def parse_json_container(self, node: JsonNode, closing: str, depth: int) -> JsonNode:
        at = self.find_end_of_blanks(node.start + 1)
        while self.text[at : at + 1] != closing:
            if node.items and not node.comma:
                raise self.build_syntax_error(at, f"a comma or {closing} is missing")
            node.begins.append(at)
            if node.kind == "object":
                at = self.parse_member_name_into_node(node, at)
            item = self.parse_json_node(at, depth + 1)
            node.items.append(item)
            at = self.find_end_of_blanks(item.end)
            node.comma = self.text[at : at + 1] == ","
            if node.comma:
                at = self.find_end_of_blanks(at + 1)
        node.end = at + 1
        return node

    def parse_member_name_into_node(self, node: JsonNode, at: int) -> int:
        match = _STRING.match(self.text, at)
        if match is None:
            raise self.build_syntax_error(at, "a name in double quotes is missing")
        colon = self.find_end_of_blanks(match.end())
        if self.text[colon : colon + 1] != ":":
            raise self.build_syntax_error(colon, "a colon is missing")
        node.keys.append(json.loads(match.group()))
        return self.find_end_of_blanks(colon + 1)


# --- edits ------------------------------------------------------------------------------------------------


def find_jsonc_node(root: JsonNode, path: Path) -> JsonNode | None:
    """Return the value at the path, or None."""
    for step in path:
        at = root.find_member_or_element_index(step)
        if at is None:
            return None
        root = root.items[at]
    return root


def set_jsonc_value(text: str, path: Sequence[str], value: Any) -> str:
    """Return the text with a value at the path; what is missing on the way is made, the former value is replaced.

    Raises UnreadableSettings where something on the way is no object.
    """
    node = parse_jsonc(text)
    for depth, key in enumerate(path):
        if node.kind != "object":
            raise UnreadableSettings(f"{'.'.join(path[:depth]) or 'the whole'} is not an object")
        at = node.find_member_or_element_index(key)
        if at is None:
            for missing in reversed(path[depth + 1 :]):
                value = {missing: value}
            return insert_jsonc_item(text, node, value, key)
        node = node.items[at]
    return (
        text[: node.start]
        + format_jsonc_value(text, value, line_indentation(text, node.start))
        + text[node.end :]
    )


def append_jsonc_element(text: str, path: Sequence[str], value: Any) -> str:
    """Return the text with an element added to the list at the path, which is made if it is missing.

    Raises UnreadableSettings where there is something other than a list.
    """
    node = find_jsonc_node(parse_jsonc(text), path)
    if node is None:
        return set_jsonc_value(text, path, [value])
    if node.kind != "array":
        raise UnreadableSettings(f"{'.'.join(path)} is not a list")
    return insert_jsonc_item(text, node, value, None)


def remove_jsonc_item(text: str, path: Path) -> str:
    """Return the text without the member or element at the path. Comments around it stay."""
    root = parse_jsonc(text)
    node = find_jsonc_node(root, path[:-1])
    at = node.find_member_or_element_index(path[-1]) if node is not None else None
    if node is None or at is None:
        return text
    begin, end = node.begins[at], node.items[at].end
    last = at == len(node.items) - 1
    if not last or node.comma:
        end = text.index(",", JsoncParser(text).find_end_of_blanks(end)) + 1
    text = cut_text_range(text, begin, end)
    if last and not node.comma and at > 0:
        before = JsoncParser(text).find_end_of_blanks(node.items[at - 1].end)
        text = text[:before] + text[before + 1 :]  # the comma that now is followed by nothing
    return text


def cut_text_range(text: str, begin: int, end: int) -> str:
    """Return the text without that part, nor the line that it leaves empty."""
    line = text.rfind("\n", 0, begin) + 1
    rest = re.compile(r"[ \t]*\r?\n").match(text, end)
    if rest and not text[line:begin].strip(" \t"):
        return text[:line] + text[rest.end() :]
    if rest is None:
        spaces = _INDENT.match(text, end)
        end = spaces.end() if spaces and text[begin - 1 : begin] in {" ", "\t"} else end
    return text[:begin] + text[end:]


def insert_jsonc_item(text: str, node: JsonNode, value: Any, key: str | None) -> str:
    """Return the text with an item at the end of `node`."""
    lead = "" if key is None else f"{json.dumps(key, ensure_ascii=False)}: "
    if is_node_on_one_line(text, node):
        item = lead + json.dumps(value, ensure_ascii=False)
        at = node.items[-1].end if node.items else node.start + 1
        between = ", " if node.items else ""
        if node.comma:
            at, between = text.index(",", JsoncParser(text).find_end_of_blanks(at)) + 1, " "
            item += ","
        return f"{text[:at]}{between}{item}{text[at:]}"
    outer = line_indentation(text, node.start)
    inner = line_indentation(text, node.begins[0]) if node.items else outer + detect_indentation_unit(text)
    line = detect_jsonc_newline(text)
    item = line + inner + lead + format_jsonc_value(text, value, inner) + ("," if node.comma else "")
    if not node.items:
        inside = text[node.start + 1 : node.end - 1].rstrip()
        return f"{text[: node.start + 1]}{inside}{item}{line}{outer}{text[node.end - 1 :]}"
    end = node.items[-1].end
    if node.comma:
        end = text.index(",", JsoncParser(text).find_end_of_blanks(end)) + 1
    match = _ON_THIS_LINE.match(text, end)
    ending = match.end() if match and match.end() < node.end - 1 else end
    comma = "" if node.comma else ","
    rest = text[ending:]
    if rest.lstrip(" \t").startswith(("}", "]")):  # the last item and the closing sign share a line
        rest = line + outer + rest.lstrip(" \t")
    return f"{text[:end]}{comma}{text[end:ending].rstrip()}{item}{rest}"


def is_node_on_one_line(text: str, node: JsonNode) -> bool:
    if node.items:
        return "\n" not in text[node.start : node.begins[0]]
    return "\n" not in text.strip() and len(text.strip()) > len("{}")


def format_jsonc_value(text: str, value: Any, indent: str) -> str:
    """Return the value as JSON, in lines as the text is, each but the first with `indent` before it."""
    if "\n" not in text.strip() and len(text.strip()) > len("{}"):
        return json.dumps(value, ensure_ascii=False)
    lines = json.dumps(value, ensure_ascii=False, indent=detect_indentation_unit(text)).split("\n")
    return (detect_jsonc_newline(text) + indent).join(lines)


def detect_jsonc_newline(text: str) -> str:
    return "\r\n" if 2 * text.count("\r\n") > text.count("\n") else "\n"


def detect_indentation_unit(text: str) -> str:
    """Return what one level of indentation is made of."""
    root = parse_jsonc(text)
    for begin in root.begins:
        line = text.rfind("\n", 0, begin) + 1
        if line and line < begin and not text[line:begin].strip(" \t"):
            return text[line:begin]
    return "  "


def line_indentation(text: str, at: int) -> str:
    """Return the indentation of the line at a place."""
    match = _INDENT.match(text, text.rfind("\n", 0, at) + 1)
    return match.group() if match else ""


def iterate_jsonc_nodes(
    node: JsonNode, path: tuple[str | int, ...] = ()
) -> Iterator[tuple[tuple[str | int, ...], JsonNode]]:
    """Yield every value below the node with its path."""
    for at, item in enumerate(node.items):
        step = (*path, node.keys[at] if node.kind == "object" else at)
        yield step, item
        yield from iterate_jsonc_nodes(item, step)
