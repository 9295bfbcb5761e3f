"""Real paths behind the symbolic links of a call, which only the agent's machine can resolve.

A rule about a path looks at the path as a call writes it and at the one that it really names. So the links on the way
to every path of a call are put into the hook's body, each with the real path behind it. Links directly below the
root folder are left out: they belong to the system (`/tmp` on a Mac), and rules are written with their names.
"""

from __future__ import annotations

import json
import os
import re

TYPE_CHECKING = False  # `typing` takes longer to load than the rest of this module
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

FIELD = (
    "signalbox_links"  # of the hook's body: {"links": [[link, real path]], "complete": whether these are all}
)
MAX_WORDS = 300  # that are tried as paths
MAX_LINKS = 50
LONGEST_PATH = 4096  # characters
LONGEST_TEXT = 64 << 10  # characters of one text that are looked through
NOT_OF_THE_CALL = frozenset({"session_id", "transcript_path", "hook_event_name", "prompt", "permission_mode"})
# Words of a command: the texts between blanks, quotes, signs of the shell, `=` and `:`.
_WORD = re.compile(r"[^\s'\"`|&;<>()={}\[\],:$*?]+")


def build_hook_body_with_symlinks(body: bytes, payload: Mapping[str, Any]) -> bytes:
    """Return a hook's body with the links on the way to its call's paths; as it is where there are none."""
    end = body.rstrip()
    if FIELD in payload or not end.endswith(b"}"):
        return body
    links, is_complete = collect_call_symlinks_and_completeness(payload)
    if not links and is_complete:
        return body
    real_paths = {"links": [list(pair) for pair in links.items()], "complete": is_complete}
    return end[:-1] + b', "' + FIELD.encode() + b'": ' + json.dumps(real_paths).encode() + b"}"


def collect_call_symlinks_and_completeness(payload: Mapping[str, Any]) -> tuple[dict[str, str], bool]:
    """Return the real path behind each link, and whether all words of the call were looked at."""
    folder = payload.get("cwd")
    folder = folder if isinstance(folder, str) and os.path.isabs(folder) else os.getcwd()
    links: dict[str, str] = {}
    add_symlinks_on_path(links, folder)
    folders = [folder]
    call = {name: payload[name] for name in payload if name not in NOT_OF_THE_CALL}
    for number, word in enumerate(iterate_path_like_texts(call)):
        if number >= MAX_WORDS or len(links) > MAX_LINKS:
            return links, False
        path = os.path.expanduser(word)
        for base in folders:
            add_symlinks_on_path(links, os.path.join(base, path))
        if len(folders) < 4 and not os.path.isabs(path) and os.path.isdir(os.path.join(folder, path)):
            folders.append(os.path.join(folder, path))  # a command may go there first
    return links, True


def iterate_path_like_texts(value: object) -> Iterator[str]:
    """Yield, once each, what may be a path in the texts below a value: each short text, and the words of each."""
    seen_words: set[str] = set()
    pending = [value]
    while pending:
        part = pending.pop()
        if isinstance(part, dict):
            pending += part.values()
        elif isinstance(part, list):
            pending += reversed(part)
        elif isinstance(part, str):
            words = _WORD.findall(part[:LONGEST_TEXT])
            for word in [part, *words] if len(part) <= 256 and "\n" not in part else words:
                if word not in seen_words and len(word) <= LONGEST_PATH and "\0" not in word:
                    seen_words.add(word)
                    yield word


def add_symlinks_on_path(links: dict[str, str], path: str) -> None:
    """Add the links on the way to an absolute path: each as it is written, without `.` and `..`, and where it leads."""
    plain = os.path.normpath(path)
    try:
        real = os.path.realpath(path)
        if real == plain or "//" in plain:
            return
        if real != os.path.realpath(plain):  # `link/..` is the folder above the one that the link leads to
            links[plain] = real
        for end in range(1, len(plain)):
            if plain[end] == os.sep:
                add_symlink_target(links, plain[:end])
        add_symlink_target(links, plain)
    except (OSError, ValueError):
        return


def add_symlink_target(links: dict[str, str], path: str) -> None:
    if path not in links and os.path.dirname(path) != os.sep and os.path.islink(path):
        links[path] = os.path.realpath(path)
