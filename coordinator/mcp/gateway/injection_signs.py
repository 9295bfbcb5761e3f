"""Marks for what may be instructions hidden in a server's results or definitions. Pure.

A mark is a hint: ordinary texts get some, and an attacker can avoid them. It decides nothing unless a rule asks for it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import msgspec
import re2

INVISIBLE = "invisible characters"
INSTRUCTIONS = "instructions to the model"
NEW_ADDRESS = "address not seen before"
MAX_CONTAINERS = 1_000_000  # of a value, that are searched
MAX_HOSTS = 200  # of a result, that are compared with those seen before
MAX_ADDRESSES = 50_000  # of a result, that are read
MAX_HOST_CHARACTERS = 253  # as DNS has it
# Letters of the tag block, with which a text can be written that nobody sees (but for flags of regions, which begin
# with a black flag); directions; three or more zero-width characters or variation selectors in a row.
_INVISIBLE = re.compile(
    "(?<!\U0001f3f4)(?<![\U000e0020-\U000e007f])[\U000e0000-\U000e007f]|[\u202a-\u202e\u2066-\u2069]"
    "|[\u200b-\u200d\u2060-\u2064\ufeff\u00ad]{3}|[\ufe00-\ufe0f\U000e0100-\U000e01ef]{3}"
)
_ZERO_WIDTH = re.compile("[\u00ad\u200b-\u200f\u2060-\u2064\ufe00-\ufe0f\ufeff\U000e0000-\U000e01ef]+")
_INSTRUCTIONS = re2.compile(
    r"(?i)\b(?:ignore|disregard|forget|override)\b[^.\n]{0,40}\b(?:previous|prior|above|earlier|preceding|all|your)\b"
    r"[^.\n]{0,30}\b(?:instructions?|prompts?|rules|guidelines|directions)\b"
    r"|\b(?:do not|don.?t|never|without)\s+(?:tell|mention|inform|reveal|notify|alert|show)\w*\b[^.\n]{0,30}\buser\b"
    r"|<\s*/?\s*(?:important|system|system-reminder|instructions?)\s*>"
    r"|\bnew (?:system )?instructions?\s*:"
    r"|\bbefore (?:using|calling) (?:this|any other) tool\b[^.\n]{0,60}\b(?:read|send|call|include|pass)\b"
)
# What an ASCII text contains where either can occur in it.
_HINT = re2.compile(r"(?i)\\u|ignore|disregard|forget|override|user|important|system|instruction|before")
# An address up to where browsers take its host to end: a backslash is a slash to them.
_ADDRESS = re2.compile(r"(?i)(?:https?|wss?|ftps?):[/\\]{2,}([^\s\x00-\x1f\x7f/\\?#\"'<>`|(){}^,;]{1,500})")
_ADDRESS_HINT = re2.compile(r"(?i)(?:https?|wss?|ftps?):|\\u")
_decode = msgspec.json.Decoder().decode


@dataclass(frozen=True, slots=True)
class ResponseFindings:
    """What in a response may matter: its marks, and the hosts of its addresses.

    `has_more_hosts`: it has more of them than are looked at. `named_hosts` are those that the call named.
    """

    marks: list[str]
    hosts: frozenset[str] = frozenset()
    has_more_hosts: bool = False
    named_hosts: frozenset[str] = frozenset()


def find_injection_signs_in_text(text: str) -> list[str]:
    """Return the marks of a text."""
    marks = []
    if not text.isascii():
        if _INVISIBLE.search(text) is not None:
            marks.append(INVISIBLE)
        text = _ZERO_WIDTH.sub("", text)
    if _INSTRUCTIONS.search(text.encode("utf-8", "replace").decode()) is not None:
        marks.append(INSTRUCTIONS)
    return marks


def find_injection_signs_in_json(value: Any) -> list[str]:
    """Return the marks of all texts of a JSON value, but for the bytes of pictures and sounds."""
    return find_injection_signs_in_text(join_json_strings(value))


def join_json_strings(value: Any) -> str:
    """Return all texts of a JSON value, each on a line, but for the bytes of pictures and sounds."""
    texts: list[str] = []
    waiting, count = [value], 0
    while waiting and count < MAX_CONTAINERS:
        holder = waiting.pop()
        count += 1
        if isinstance(holder, str):
            texts.append(holder)
        elif isinstance(holder, list):
            waiting += holder
        elif isinstance(holder, dict):
            waiting += [item for name, item in holder.items() if name not in {"data", "blob"}]
            texts += holder
    return "\n".join(reversed(texts))


def find_url_hosts_and_overflow(text: str) -> tuple[frozenset[str], bool]:
    """Return the hosts of the addresses in a text, and whether there are more than are looked at."""
    hosts: set[str] = set()
    plain = _ZERO_WIDTH.sub("", text) if not text.isascii() else text
    for count, address in enumerate(_ADDRESS.finditer(plain.encode("utf-8", "replace").decode())):
        if count >= MAX_ADDRESSES or len(hosts) >= MAX_HOSTS:
            return frozenset(hosts), True
        if host := parse_host_or_empty(address[1]):
            hosts.add(host)
    return frozenset(hosts), False


def parse_host_or_empty(authority: str) -> str:
    """Return the host of an address's authority, without user and port; empty where there is none."""
    host = authority.rpartition("@")[2].lower()
    if host.startswith("["):  # an address of IPv6
        return host.partition("]")[0][1:MAX_HOST_CHARACTERS]
    return host.partition(":")[0][:MAX_HOST_CHARACTERS].strip(".*_-!&=~$+]")


def find_injection_signs_in_response(response: bytes) -> list[str]:
    """Return the marks of a server's response, but for that of new addresses."""
    return find_response_injection_and_hosts(response, finds_hosts=False).marks


def find_response_injection_and_hosts(
    response: bytes, params: Any = None, *, finds_hosts: bool = True
) -> ResponseFindings:
    """Return the marks of a server's response.

    `finds_hosts`: with the hosts of its addresses, and of those in the call's `params`.
    """
    text = response.decode() if response.isascii() else None
    has_hint = text is None or _HINT.search(text) is not None
    if not has_hint and not (finds_hosts and text is not None and _ADDRESS_HINT.search(text)):
        return ResponseFindings([])
    try:
        value = _decode(response)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ResponseFindings([])
    if not isinstance(value, dict):
        return ResponseFindings([])
    joined = join_json_strings([value.get("result"), value.get("error")])
    if not finds_hosts:
        return ResponseFindings(find_injection_signs_in_text(joined))
    hosts, has_more_hosts = find_url_hosts_and_overflow(joined)
    named_hosts, _ = (
        find_url_hosts_and_overflow(join_json_strings(params)) if hosts else (frozenset[str](), False)
    )
    return ResponseFindings(find_injection_signs_in_text(joined), hosts, has_more_hosts, named_hosts)
