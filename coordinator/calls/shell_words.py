"""Words of a shell command as the shell joins them: quotes, escapes and continued lines removed.

A word is known only where it is the same whenever the command runs. What a variable or a substitution makes of it is
unknown, with the part before it as its `prefix`.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple

from tree_sitter import Node

from coordinator.calls.shell_parser import MAX_SYNTAX_DEPTH, TOO_DEEP, ShellBudget, UnreadableShell

MAX_BRACE_WORDS = 64  # that braces make of one word
LONGEST_SHOWN = 80  # characters of a part that a reason quotes
# Placeholders of quoted characters that would mean something outside quotes: surrogates, which no text in UTF-8 holds.
_SPECIAL = "~*?[]{},"
_PROTECT = {ord(char): 0xDC00 + position for position, char in enumerate(_SPECIAL)}
_REVEAL = {0xDC00 + position: char for position, char in enumerate(_SPECIAL)}
_ANSI_ESCAPE = re.compile(
    r"\\(?:x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|U([0-9A-Fa-f]{1,8})|([0-7]{1,3})|c(.)|(.))", re.DOTALL
)
_ANSI_LETTERS = dict(zip("abeEfnrtv", "\a\b\x1b\x1b\f\n\r\t\v", strict=True))
_PLAIN_WORD = re.compile(rb"[A-Za-z0-9_./:,@%+=-]{1,200}")
_OTHER_FOLDER = re.compile(r"~[^/]")  # another user's home folder, `~+` or `~-`
_RANGE = re.compile(r"(-?\d{1,4}|[A-Za-z])\.\.(-?\d{1,4}|[A-Za-z])")
_PLAIN = frozenset({"word", "number", "variable_name", "test_operator", "special_variable_name"})
_UNKNOWN_KINDS = {
    "command_substitution": "the output of",
    "process_substitution": "the output of",
    "arithmetic_expansion": "the number",
    "array": "the list",
}


class ShellWord(NamedTuple):
    """One word. `text` is None where it is not known; `reason` then says what makes it.

    `is_pattern`: file names that fit are put in its place. `is_home`: it begins with the user's home folder, written
    as `~`. `is_split`: an unquoted expansion, which may become no word or several.
    """

    text: str | None
    prefix: str = ""
    reason: str = ""
    is_pattern: bool = False
    is_home: bool = False
    is_split: bool = False

    @property
    def shown_text(self) -> str:
        """The word as a person may read it."""
        return self.text if self.text is not None else f"{self.prefix}…"

    @property
    def has_blank_or_hidden_characters(self) -> bool:
        """Whether the word holds characters that look like none, or like a blank."""
        return (
            self.text is not None
            and not self.text.isascii()
            and any(map(is_blank_or_hidden_character, self.text))
        )


def is_blank_or_hidden_character(char: str) -> bool:
    return char > "\x7f" and unicodedata.category(char) in {"Zs", "Zl", "Zp", "Cf", "Cc"}


class _WordPiece(NamedTuple):
    """A part of a word: its text, quoted characters protected; None with the reason where it is not known."""

    text: str | None
    reason: str = ""
    is_quoted: bool = False


@lru_cache(maxsize=4096)
def build_plain_shell_word(source: bytes) -> ShellWord:
    return ShellWord(source.decode())


class WordReader:
    """Reads the words of one shell text. `read_nested` gets each substitution that is met."""

    def __init__(self, source: bytes, budget: ShellBudget, read_nested: Callable[[Node, int], None]) -> None:
        self._source = source
        self._budget = budget
        self._read_nested = read_nested

    def decode_source_span(self, start: int, end: int) -> str:
        return self._source[start:end].decode("utf-8", "replace")

    def parse_words_of_nodes(self, nodes: list[Node], depth: int) -> list[ShellWord]:
        """Return the words that one node, or several without a blank between them, become."""
        if len(nodes) == 1:
            node = nodes[0]
            # Most words are written as they are.
            if _PLAIN_WORD.fullmatch(self._source, node.start_byte, node.end_byte):
                return [build_plain_shell_word(self._source[node.start_byte : node.end_byte])]
        pieces = [piece for node in nodes for piece in self._parse_word_pieces(node, False, depth)]
        return list(iterate_words_from_pieces(pieces))

    def _parse_word_pieces(self, node: Node, is_quoted: bool, depth: int) -> list[_WordPiece]:
        if depth > MAX_SYNTAX_DEPTH:
            raise UnreadableShell(TOO_DEEP)
        kind = node.type
        if kind in _PLAIN and not node.child_count:
            return [
                _WordPiece(unescape_and_protect_word(self.decode_source_span(node.start_byte, node.end_byte)))
            ]
        if kind == "raw_string":
            pieces = [
                _WordPiece(
                    self.decode_source_span(node.start_byte + 1, node.end_byte - 1).translate(_PROTECT)
                )
            ]
        elif kind == "ansi_c_string":
            text = decode_ansi_c_quoted_string(
                self.decode_source_span(node.start_byte + 2, node.end_byte - 1)
            )
            pieces = [_WordPiece(text.translate(_PROTECT))]
        elif kind == "string":
            pieces = self._parse_double_quoted_pieces(node, depth)
        elif kind in {"concatenation", "command_name", "translated_string"}:
            children = [child for child in node.children if child.type != "$"]
            self._budget.consume_syntax_nodes(len(children))
            pieces = [
                piece for child in children for piece in self._parse_word_pieces(child, is_quoted, depth + 1)
            ]
            if b"``" in self._source[node.start_byte : node.end_byte]:  # the grammar passes over it
                pieces.append(_WordPiece(None, "the output of ``"))
        elif kind == "brace_expression" or not node.is_named:
            pieces = [_WordPiece(self.decode_source_span(node.start_byte, node.end_byte))]
        elif kind in {"simple_expansion", "expansion"}:
            pieces = [self._parse_variable_expansion(node, is_quoted, depth)]
        else:
            pieces = [
                self._build_unknown_word_piece(node, _UNKNOWN_KINDS.get(kind, "the text"), is_quoted, depth)
            ]
        return pieces

    def _parse_double_quoted_pieces(self, node: Node, depth: int) -> list[_WordPiece]:
        """Return the parts of a text in double quotes: its expansions, and the texts between them."""
        children = node.children
        self._budget.consume_syntax_nodes(len(children))
        start, last = children[0].end_byte, children[-1]
        end = last.start_byte if last.type == '"' and len(children) > 1 else node.end_byte
        pieces: list[_WordPiece] = [_WordPiece("", is_quoted=True)]
        for child in children[1:]:
            if child.type == "string_content" or not child.is_named:
                continue
            pieces.append(self._build_double_quoted_text_piece(start, child.start_byte))
            pieces += self._parse_word_pieces(child, True, depth + 1)
            start = child.end_byte
        pieces.append(self._build_double_quoted_text_piece(start, end))
        return pieces

    def _build_double_quoted_text_piece(self, start: int, end: int) -> _WordPiece:
        text = self.decode_source_span(start, end)
        if "\\" in text:
            text = re.sub(r"\\(\n|[$`\"\\])", lambda found: found[1].strip("\n"), text)
        return _WordPiece(text.translate(_PROTECT), is_quoted=True)

    def _parse_variable_expansion(self, node: Node, is_quoted: bool, depth: int) -> _WordPiece:
        text = self.decode_source_span(node.start_byte, node.end_byte)
        if text in {"$HOME", "${HOME}"}:
            return _WordPiece("~")
        return self._build_unknown_word_piece(node, "the variable", is_quoted, depth)

    def _build_unknown_word_piece(self, node: Node, reason: str, is_quoted: bool, depth: int) -> _WordPiece:
        self._read_nested(node, depth + 1)
        shown_text = " ".join(self.decode_source_span(node.start_byte, node.end_byte).split())
        shown_text = shown_text if len(shown_text) <= LONGEST_SHOWN else f"{shown_text[: LONGEST_SHOWN - 1]}…"
        return _WordPiece(None, f"{reason} {shown_text}", is_quoted)


def iterate_words_from_pieces(pieces: list[_WordPiece]) -> Iterator[ShellWord]:
    """Yield the words that the parts of one word become: several where braces make them."""
    word_texts: list[str] = []
    for piece in pieces:
        if piece.text is None:
            prefix = "".join(word_texts)
            yield ShellWord(
                None,
                prefix.translate(_REVEAL),
                piece.reason,
                is_home=prefix.startswith("~"),
                is_split=not piece.is_quoted,
            )
            return
        word_texts.append(piece.text)
    text = "".join(word_texts)
    for expanded in expand_braces(text):
        if _OTHER_FOLDER.match(expanded):
            yield ShellWord(None, reason=f"the folder that {expanded.partition('/')[0]} stands for")
            continue
        yield ShellWord(
            expanded.translate(_REVEAL),
            is_pattern=any(char in expanded for char in "*?["),
            is_home=expanded == "~" or expanded.startswith("~/"),
        )


def expand_braces(text: str) -> list[str]:
    """Return the words that `a{b,c}` and `{1..3}` become; the word itself where that would be very many."""
    if "{" not in text or "}" not in text:
        return [text]
    expanded: list[str] = []
    pending = [text]
    while pending:
        if len(expanded) + len(pending) > MAX_BRACE_WORDS:
            return [text]
        word = pending.pop(0)
        expansion = expand_first_brace(word)
        if expansion is None:
            expanded.append(word)
        else:
            pending = [*expansion, *pending]
    return expanded


def expand_first_brace(text: str) -> list[str] | None:
    """Return what the first pair of braces with alternatives makes of a word; None where it has none."""
    for start, char in enumerate(text):
        if char != "{":
            continue
        depth, cuts = 0, [start]
        for position in range(start, len(text)):
            if text[position] == "{":
                depth += 1
            elif text[position] == "}":
                depth -= 1
                if depth == 0:
                    cuts.append(position)
                    break
            elif text[position] == "," and depth == 1:
                cuts.append(position)
        else:
            continue
        before, after = text[:start], text[cuts[-1] + 1 :]
        if len(cuts) > 2:
            return [f"{before}{text[one + 1 : other]}{after}" for one, other in itertools.pairwise(cuts)]
        if (numbers := _RANGE.fullmatch(text[start + 1 : cuts[-1]])) is not None:
            return [f"{before}{value}{after}" for value in expand_brace_range(*numbers.groups())]
    return None


def expand_brace_range(first: str, last: str) -> list[str]:
    """Return the values of `{first..last}`, at most one more than are expanded."""
    if first.lstrip("-").isdigit() and last.lstrip("-").isdigit():
        low, high = sorted((int(first), int(last)))
        return [str(value) for value in range(low, min(high, low + MAX_BRACE_WORDS) + 1)]
    if len(first) == len(last) == 1:
        low, high = sorted((ord(first), ord(last)))
        return [chr(value) for value in range(low, high + 1)]
    return [f"{{{first}..{last}}}"]


def unescape_and_protect_word(text: str) -> str:
    """Return an unquoted word without its backslashes; what they quote is protected."""
    if "\\" not in text:
        return text
    return re.sub(r"\\(.?)", lambda found: found[1].strip("\n").translate(_PROTECT), text, flags=re.DOTALL)


def decode_ansi_c_quoted_string(text: str) -> str:
    """Return what `$'…'` means."""

    def decode_escape(match: re.Match[str]) -> str:
        hexadecimal, short, long, octal, control, letter = match.groups()
        if code := hexadecimal or short or long:
            number = int(code, 16)
            return chr(number) if 0 < number < 0x110000 and not 0xD800 <= number < 0xE000 else "\ufffd"
        if octal:
            return chr(int(octal, 8) & 0xFF)
        if control:
            return chr(ord(control) & 0x1F)
        return _ANSI_LETTERS.get(letter, letter if letter in "\\'\"?" else f"\\{letter}")

    return _ANSI_ESCAPE.sub(decode_escape, text)
