"""Parsing shell text with tree-sitter, within a budget that holds whatever the text says.

tree-sitter's Bash grammar is also what reads `sh`, `dash`, `ksh` and `zsh` here. Text that the grammar refuses is
unreadable, and so is text beyond the budget. The budget is shared by all shell texts of one call: a shell that starts
a shell that starts a shell costs no more than one.
"""

from __future__ import annotations

import functools
import re
import time

import tree_sitter_bash
from tree_sitter import Language, Node, Parser, Point

MAX_SHELL_BYTES = 65_536  # of all shell texts of one call; a script of 1,500 lines fits
MAX_SHELL_NODES = 30_000  # of all syntax trees of one call
MAX_PARSE_SECONDS = (
    0.05  # of this thread's processor time; some hostile texts take time by the square of their length
)
MAX_SYNTAX_DEPTH = 60  # of blocks, substitutions and words in each other
MAX_SHELL_DEPTH = 6  # of shells that start shells
CHUNK_BYTES = 65_536
_NOT_ASCII = re.compile(rb"[\xc2-\xf4][\x80-\xbf]+")  # one character in UTF-8
_TIMES_SIGN = b"\xc3\x97"

TOO_LONG = f"it is longer than {MAX_SHELL_BYTES // 1024} KiB"
TOO_MANY = "it has too many parts"
TOO_SLOW = "it takes too long to parse"
TOO_DEEP = "it is nested too deeply"
NOT_SHELL = "its syntax cannot be read"


class UnreadableShell(Exception):
    """A shell text that is not read, with the reason in words that follow "because"."""


class ShellBudget:
    """What is left to read of one call's shell texts."""

    def __init__(self) -> None:
        self.bytes_left = MAX_SHELL_BYTES
        self.nodes_left = MAX_SHELL_NODES
        self.seconds_left = MAX_PARSE_SECONDS

    def consume_syntax_nodes(self, count: int) -> None:
        """Take so many nodes off the budget. Raises UnreadableShell."""
        self.nodes_left -= count
        if self.nodes_left < 0:
            raise UnreadableShell(TOO_MANY)


@functools.cache
def load_shell_language() -> Language:
    return Language(tree_sitter_bash.language())


def replace_non_ascii_bytes(source: bytes) -> bytes:
    """Return a shell text in which a times sign, of as many bytes, stands for each character that is not ASCII.

    The grammar's scanner looks up each character in C's table of 256 characters (`isalpha`), without a check: a text
    with a larger one can crash the process. To a shell such characters are all alike: part of a word, never of a name.
    """
    return _NOT_ASCII.sub(
        lambda found: _TIMES_SIGN * (len(found[0]) // 2) + b"a" * (len(found[0]) % 2), source
    )


def parse_shell_tree_within_budget(source: bytes, budget: ShellBudget) -> Node:
    """Return the syntax tree of a shell text. Raises UnreadableShell for one that the budget does not allow.

    Syntax errors are nodes of the tree (`Node.has_error`). Texts are read from the source by the places of nodes:
    the tree is that of another text of the same length.
    """
    budget.bytes_left -= len(source)
    if budget.bytes_left < 0:
        raise UnreadableShell(TOO_LONG)
    if budget.seconds_left <= 0:
        raise UnreadableShell(TOO_SLOW)
    parsed = replace_non_ascii_bytes(source)
    started_at = time.thread_time()
    deadline = started_at + budget.seconds_left
    earliest = time.monotonic() + budget.seconds_left  # a thread takes no more processor time than passes

    def read_source_chunk(offset: int, _point: Point) -> bytes:
        return parsed[offset : offset + CHUNK_BYTES]

    def is_time_over(_offset: int, _has_error: bool) -> bool:
        return time.monotonic() > earliest and time.thread_time() > deadline

    try:
        tree = Parser(load_shell_language()).parse(read_source_chunk, progress_callback=is_time_over)
    except ValueError:  # the parser was stopped
        raise UnreadableShell(TOO_SLOW) from None
    finally:
        budget.seconds_left -= time.thread_time() - started_at
    return tree.root_node
