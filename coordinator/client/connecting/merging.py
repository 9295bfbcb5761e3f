"""Our entries in an agent's settings: put in beside what is there, found again, taken out. Pure: text in, text out."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from coordinator.client.connecting import jsonc
from coordinator.client.connecting.jsonc import Node, Unreadable

COMMANDS = ("command", "bash", "powershell", "url")  # where an entry says what is called


@dataclass(frozen=True, slots=True)
class Wanted:
    """Our entries for a file of settings.

    `hooks` is, by event, the entry to add to the list `hooks.EVENT`. `basics` are values that the file must have to
    be understood, set where they are missing. `values` go in together, by path, unless one of them is set to
    something else already: then none does, and `given_way` says what that means. An object that stands at one of
    these paths and `is_ours` is no such thing, whatever an agent added to it. `former_values` are what older versions
    put in and this one takes out, if all of
    them stand there.
    """

    agent: str
    hooks: Mapping[str, Mapping[str, Any]]
    basics: Mapping[tuple[str, ...], Any] = field(default_factory=dict)
    values: Mapping[tuple[str, ...], Any] = field(default_factory=dict)
    given_way: str = ""
    is_ours: Callable[[Mapping[str, Any]], bool] = lambda _value: False
    former_values: Mapping[tuple[str, ...], Any] = field(default_factory=dict)


def put_in(text: str, wanted: Wanted, former: Wanted | None = None) -> str:
    """Return the settings with our entries, each once; the same text where they are there already.

    `former` is what we put in before, where that may have been something else. Raises Unreadable where the settings
    are no JSON object or have another shape than the agent reads.
    """
    text = _begun(text)
    _require_shape(text)
    for path, value in wanted.basics.items():
        if jsonc.find(jsonc.parse(text), path) is None:
            text = jsonc.put(text, path, value)
    for event in {**wanted.hooks, **_events(text, wanted.agent)}:
        text = _put_in_event(text, event, wanted)
    for path, value in (former.values if former else {}).items():
        if path not in wanted.values and _value(text, path) == _hashable(value):
            text = jsonc.remove(text, path)
    text = _take_out_former(text, former or wanted, "")
    if not gives_way(text, wanted, former):
        for path, value in wanted.values.items():
            text = _put_in_value(text, path, value)
    return text


def _put_in_value(text: str, path: tuple[str, ...], value: Any) -> str:
    """Return the settings with the value; what an agent added to an object stays in it."""
    node = jsonc.find(jsonc.parse(text), path)
    if node is None or node.kind != "object" or not isinstance(value, Mapping):
        return text if _value(text, path) == _hashable(value) else jsonc.put(text, path, value)
    for name, inner in value.items():
        if _value(text, (*path, name)) != _hashable(inner):
            text = jsonc.put(text, (*path, name), inner)
    return text


def take_out(text: str, wanted: Wanted, before: str = "") -> str:
    """Return the settings without our entries; values that stood there `before` stay. Raises Unreadable."""
    if not text.strip("\ufeff \t\r\n"):
        return text
    _require_shape(text)
    for event in _events(text, wanted.agent):
        text = _take_out_of_event(text, event, wanted.agent)
    text = _without_empty(text, ("hooks",), before)
    text = _take_out_former(text, wanted, before)
    for path, value in wanted.values.items():
        is_ours = _value(text, path) == _hashable(value) or _is_our_object(text, path, wanted)
        if is_ours and _value(text, path) != _value(before, path):
            text = _without_empty(jsonc.remove(text, path), path[:-1], before)
    return text


def _take_out_former(text: str, wanted: Wanted, before: str) -> str:
    """Return the settings without what older versions put in, where all of it still stands so."""
    values = wanted.former_values
    if all(_value(text, path) == _hashable(value) for path, value in values.items()):
        for path, value in values.items():
            if _value(before, path) != _hashable(value):
                text = _without_empty(jsonc.remove(text, path), path[:-1], before)
    return text


def gives_way(text: str, wanted: Wanted, former: Wanted | None = None) -> bool:
    """Say whether somebody else's values are where `values` would go; `former` is what we put in before."""
    ours = former.values if former else {}
    return any(
        _value(text, path) not in {None, _hashable(value), _hashable(ours.get(path))}
        and not _is_our_object(text, path, wanted)
        and not (former and _is_our_object(text, path, former))
        for path, value in wanted.values.items()
    )


def is_ours(entry: Any, agent: str) -> bool:
    """Say whether an entry calls Signalbox for this agent: our command, or the address that was pasted formerly."""
    if not isinstance(entry, dict):
        return False
    called = [entry[name] for name in COMMANDS if isinstance(entry.get(name), str)]
    name = re.escape(agent)
    ours = re.compile(
        rf"(?:signalbox(?:\.exe)?|coordinator\.client\.main)['\"]*\s+hook\s+{name}(?![\w-])"
        rf"|coordinator/client/launch\.py['\"]*\s+--settings\s.{{1,4096}}?\s+hook\s+{name}(?![\w-])"
        rf"|https?://\S+/hooks/{name}(?![\w-])"
    )
    return any(ours.search(words) for words in called)


def _begun(text: str) -> str:
    """Return settings that can be added to: an empty file is an empty object, in as many lines as we choose."""
    return text if text.strip("\ufeff \t\r\n") else ("\ufeff" if text.startswith("\ufeff") else "") + "{}\n"


def _require_shape(text: str) -> None:
    root = jsonc.parse(text)
    if root.kind != "object":
        raise Unreadable("it is not a JSON object")
    hooks = jsonc.find(root, ("hooks",))
    if hooks is None:
        return
    if hooks.kind != "object":
        raise Unreadable("its hooks are not an object")
    for event, entries in zip(hooks.keys, hooks.items, strict=True):
        if entries.kind != "array" and event not in _NO_EVENTS:
            raise Unreadable(f"its hooks for {event} are not a list")


# What older Gemini CLIs kept among the hooks.
_NO_EVENTS = frozenset({"enabled", "disabled", "notifications"})


def _events(text: str, agent: str) -> dict[str, None]:
    """Return the events that have an entry of ours, in their order."""
    hooks = jsonc.find(jsonc.parse(text), ("hooks",))
    if hooks is None:
        return {}
    lists = zip(hooks.keys, hooks.items, strict=True)
    return {event: None for event, entries in lists if any(_ours(entries, agent))}


def _ours(entries: Node, agent: str) -> Iterator[tuple[str | int, ...]]:
    """Yield the paths, within an event's list, of what is ours: whole entries, or hooks among others' of a group."""
    for at, entry in enumerate(entries.items if entries.kind == "array" else []):
        value = entry.plain()
        if is_ours(value, agent):
            yield (at,)
        inner = value.get("hooks") if isinstance(value, dict) else None
        found = (
            [place for place, one in enumerate(inner) if is_ours(one, agent)]
            if isinstance(inner, list)
            else []
        )
        if found and isinstance(inner, list) and len(found) == len(inner):
            yield (at,)
        else:
            yield from ((at, "hooks", place) for place in found)


def _put_in_event(text: str, event: str, wanted: Wanted) -> str:
    path, entry = ("hooks", event), wanted.hooks.get(event)
    entries = jsonc.find(jsonc.parse(text), path)
    found = list(_ours(entries, wanted.agent)) if entries is not None else []
    if entries is not None and len(found) == 1 and entry is not None:
        one = jsonc.find(entries, found[0])
        if one is not None and one.plain() == entry:
            return text
    text = _take_out_of_event(text, event, wanted.agent, keep_list=entry is not None)
    return jsonc.append(text, path, dict(entry)) if entry is not None else text


def _take_out_of_event(text: str, event: str, agent: str, *, keep_list: bool = False) -> str:
    path = ("hooks", event)
    entries = jsonc.find(jsonc.parse(text), path)
    found = list(_ours(entries, agent)) if entries is not None else []
    for place in reversed(found):
        text = jsonc.remove(text, (*path, *place))
    if found and not keep_list:
        left = jsonc.find(jsonc.parse(text), path)
        if left is not None and not left.items and not _has_words(text, left):
            text = jsonc.remove(text, path)
    return text


def _without_empty(text: str, path: tuple[str, ...], before: str) -> str:
    """Return the text without the object at the path where our entries left it empty."""
    node = jsonc.find(jsonc.parse(text), path) if path else None
    if node is None or node.items or _has_words(text, node) or _value(before, path) == _hashable({}):
        return text
    return jsonc.remove(text, path)


def _has_words(text: str, node: Node) -> bool:
    """Say whether there is a comment in an empty object or list."""
    return bool(text[node.start + 1 : node.end - 1].strip())


def _value(text: str, path: tuple[str, ...]) -> Any:
    if not text.strip("\ufeff \t\r\n"):
        return None
    try:
        node = jsonc.find(jsonc.parse(text), path)
    except Unreadable:
        return None
    return _hashable(node.plain()) if node is not None else None


def _is_our_object(text: str, path: tuple[str, ...], wanted: Wanted) -> bool:
    """Say whether an object of ours stands at the path, by what it calls."""
    node = jsonc.find(jsonc.parse(text), path) if text.strip("\ufeff \t\r\n") else None
    return node is not None and node.kind == "object" and wanted.is_ours(node.plain())


def _hashable(value: Any) -> Any:
    plain = isinstance(value, str | int | float | bool | None)
    return value if plain else json.dumps(value, sort_keys=True)
