"""Our entries in an agent's settings: added to what is there, found again, removed. Pure: text in, text out."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from coordinator.client.connecting import jsonc, status_lines
from coordinator.client.connecting.jsonc import JsonNode, UnreadableSettings

COMMANDS = ("command", "bash", "powershell", "url")  # where an entry says what is called


@dataclass(frozen=True, slots=True)
class SettingsEntries:
    """Our entries for a file of settings.

    `hooks` is, by event, the entry to add to the list `hooks.EVENT`. `basics` are values that the file must
    have to be understood, set where they are missing. `values` go in together, by path, unless one of them is
    set to something else already: then none does, and `given_way` says what that means. An object at one
    of these paths for which `is_signalbox_entry` is true does not count, whatever an agent added to it.
    `former_values` are what older versions put in and this one removes, if all of them are there.
    `status_line` is the command of the status line ("": none of ours); a person's own becomes its argument.
    """

    agent: str
    hooks: Mapping[str, Mapping[str, Any]]
    basics: Mapping[tuple[str, ...], Any] = field(default_factory=dict)
    values: Mapping[tuple[str, ...], Any] = field(default_factory=dict)
    given_way: str = ""
    is_ours: Callable[[Mapping[str, Any]], bool] = lambda _value: False
    former_values: Mapping[tuple[str, ...], Any] = field(default_factory=dict)
    status_line: str = ""


def merge_entries_into_settings_text(
    text: str, entries: SettingsEntries, former: SettingsEntries | None = None
) -> str:
    """Return the settings with our entries, each once; the same text where they are there already.

    `former` is what we put in before, where that may have been something else. Raises UnreadableSettings
    where the settings are no JSON object or have another shape than the agent reads.
    """
    text = replace_blank_text_with_object(text)
    require_settings_shape(text)
    for path, value in entries.basics.items():
        if jsonc.find_jsonc_node(jsonc.parse_jsonc(text), path) is None:
            text = jsonc.set_jsonc_value(text, path, value)
    for event in {**entries.hooks, **list_events_with_signalbox_entries(text, entries.agent)}:
        text = merge_hook_event_into_text(text, event, entries)
    for path, value in (former.values if former else {}).items():
        if path not in entries.values and hashable_json_value_at_path(text, path) == to_hashable_value(value):
            text = jsonc.remove_jsonc_item(text, path)
    text = remove_values_of_older_versions(text, former or entries, "")
    if not has_conflicting_values(text, entries, former):
        for path, value in entries.values.items():
            text = merge_value_into_settings_text(text, path, value)
    if entries.status_line:
        return status_lines.add_or_wrap_status_line(text, entries.status_line)
    return status_lines.restore_personal_status_line(text) if former and former.status_line else text


def merge_value_into_settings_text(text: str, path: tuple[str, ...], value: Any) -> str:
    """Return the settings with the value; what an agent added to an object stays in it."""
    node = jsonc.find_jsonc_node(jsonc.parse_jsonc(text), path)
    if node is None or node.kind != "object" or not isinstance(value, Mapping):
        return (
            text
            if hashable_json_value_at_path(text, path) == to_hashable_value(value)
            else jsonc.set_jsonc_value(text, path, value)
        )
    for name, inner in value.items():
        if hashable_json_value_at_path(text, (*path, name)) != to_hashable_value(inner):
            text = jsonc.set_jsonc_value(text, (*path, name), inner)
    return text


def remove_settings_entries(text: str, entries: SettingsEntries, before: str = "") -> str:
    """Return the settings without our entries; values that were there `before` stay. Raises UnreadableSettings."""
    if not text.strip("\ufeff \t\r\n"):
        return text
    require_settings_shape(text)
    for event in list_events_with_signalbox_entries(text, entries.agent):
        text = remove_hook_entries_from_text(text, event, entries.agent)
    text = remove_empty_container_from_text(text, ("hooks",), before)
    text = remove_values_of_older_versions(text, entries, before)
    for path, value in entries.values.items():
        is_ours = hashable_json_value_at_path(text, path) == to_hashable_value(
            value
        ) or is_signalbox_object_at_path(text, path, entries)
        if is_ours and hashable_json_value_at_path(text, path) != hashable_json_value_at_path(before, path):
            text = remove_empty_container_from_text(jsonc.remove_jsonc_item(text, path), path[:-1], before)
    return status_lines.restore_personal_status_line(text) if entries.status_line else text


def remove_values_of_older_versions(text: str, entries: SettingsEntries, before: str) -> str:
    """Return the settings without what older versions put in, where all of it is still there."""
    values = entries.former_values
    if all(
        hashable_json_value_at_path(text, path) == to_hashable_value(value) for path, value in values.items()
    ):
        for path, value in values.items():
            if hashable_json_value_at_path(before, path) != to_hashable_value(value):
                text = remove_empty_container_from_text(
                    jsonc.remove_jsonc_item(text, path), path[:-1], before
                )
    return text


def has_conflicting_values(
    text: str, entries: SettingsEntries, former: SettingsEntries | None = None
) -> bool:
    """Say whether somebody else's values are where `values` would go; `former` is what we put in before."""
    own_values = former.values if former else {}
    return any(
        hashable_json_value_at_path(text, path)
        not in {None, to_hashable_value(value), to_hashable_value(own_values.get(path))}
        and not is_signalbox_object_at_path(text, path, entries)
        and not (former and is_signalbox_object_at_path(text, path, former))
        for path, value in entries.values.items()
    )


def is_signalbox_entry(entry: Any, agent: str) -> bool:
    """Say whether an entry calls Signalbox for this agent: our command, or the address that was pasted formerly."""
    if not isinstance(entry, dict):
        return False
    called = [entry[name] for name in COMMANDS if isinstance(entry.get(name), str)]
    name = re.escape(agent)
    own_pattern = re.compile(
        rf"(?:signalbox(?:\.exe)?|coordinator\.client\.main)['\"]*\s+hook\s+{name}(?![\w-])"
        rf"|coordinator/client/launch\.py['\"]*\s+--settings\s.{{1,4096}}?\s+hook\s+{name}(?![\w-])"
        rf"|https?://\S+/hooks/{name}(?![\w-])"
    )
    return any(own_pattern.search(called_text) for called_text in called)


def replace_blank_text_with_object(text: str) -> str:
    """Return settings that can be added to: an empty file is an empty object, in as many lines as we choose."""
    return text if text.strip("\ufeff \t\r\n") else ("\ufeff" if text.startswith("\ufeff") else "") + "{}\n"


def require_settings_shape(text: str) -> None:
    root = jsonc.parse_jsonc(text)
    if root.kind != "object":
        raise UnreadableSettings("it is not a JSON object")
    hooks = jsonc.find_jsonc_node(root, ("hooks",))
    if hooks is None:
        return
    if hooks.kind != "object":
        raise UnreadableSettings("its hooks are not an object")
    for event, entries in zip(hooks.keys, hooks.items, strict=True):
        if entries.kind != "array" and event not in _NO_EVENTS:
            raise UnreadableSettings(f"its hooks for {event} are not a list")


# What older Gemini CLIs kept among the hooks.
_NO_EVENTS = frozenset({"enabled", "disabled", "notifications"})


def list_events_with_signalbox_entries(text: str, agent: str) -> dict[str, None]:
    """Return the events that have an entry of ours, in their order."""
    hooks = jsonc.find_jsonc_node(jsonc.parse_jsonc(text), ("hooks",))
    if hooks is None:
        return {}
    lists = zip(hooks.keys, hooks.items, strict=True)
    return {event: None for event, entries in lists if any(iterate_signalbox_entry_paths(entries, agent))}


def iterate_signalbox_entry_paths(entries: JsonNode, agent: str) -> Iterator[tuple[str | int, ...]]:
    """Yield the paths, within an event's list, of what is ours: whole entries, or hooks among others' of a group."""
    for at, entry in enumerate(entries.items if entries.kind == "array" else []):
        value = entry.to_python_value()
        if is_signalbox_entry(value, agent):
            yield (at,)
        inner = value.get("hooks") if isinstance(value, dict) else None
        own_positions = (
            [place for place, inner_entry in enumerate(inner) if is_signalbox_entry(inner_entry, agent)]
            if isinstance(inner, list)
            else []
        )
        if own_positions and isinstance(inner, list) and len(own_positions) == len(inner):
            yield (at,)
        else:
            yield from ((at, "hooks", place) for place in own_positions)


def merge_hook_event_into_text(text: str, event: str, wanted_entries: SettingsEntries) -> str:
    path, entry = ("hooks", event), wanted_entries.hooks.get(event)
    entries = jsonc.find_jsonc_node(jsonc.parse_jsonc(text), path)
    entry_paths = (
        list(iterate_signalbox_entry_paths(entries, wanted_entries.agent)) if entries is not None else []
    )
    if entries is not None and len(entry_paths) == 1 and entry is not None:
        jsonc_node = jsonc.find_jsonc_node(entries, entry_paths[0])
        if jsonc_node is not None and jsonc_node.to_python_value() == entry:
            return text
    text = remove_hook_entries_from_text(text, event, wanted_entries.agent, keep_list=entry is not None)
    return jsonc.append_jsonc_element(text, path, dict(entry)) if entry is not None else text


def remove_hook_entries_from_text(text: str, event: str, agent: str, *, keep_list: bool = False) -> str:
    path = ("hooks", event)
    entries = jsonc.find_jsonc_node(jsonc.parse_jsonc(text), path)
    entry_paths = list(iterate_signalbox_entry_paths(entries, agent)) if entries is not None else []
    for entry_path in reversed(entry_paths):
        text = jsonc.remove_jsonc_item(text, (*path, *entry_path))
    if entry_paths and not keep_list:
        node = jsonc.find_jsonc_node(jsonc.parse_jsonc(text), path)
        if node is not None and not node.items and not has_comment_in_empty_container(text, node):
            text = jsonc.remove_jsonc_item(text, path)
    return text


def remove_empty_container_from_text(text: str, path: tuple[str, ...], before: str) -> str:
    """Return the text without the object at the path where our entries left it empty."""
    node = jsonc.find_jsonc_node(jsonc.parse_jsonc(text), path) if path else None
    if (
        node is None
        or node.items
        or has_comment_in_empty_container(text, node)
        or hashable_json_value_at_path(before, path) == to_hashable_value({})
    ):
        return text
    return jsonc.remove_jsonc_item(text, path)


def has_comment_in_empty_container(text: str, node: JsonNode) -> bool:
    """Say whether there is a comment in an empty object or list."""
    return bool(text[node.start + 1 : node.end - 1].strip())


def hashable_json_value_at_path(text: str, path: tuple[str, ...]) -> Any:
    if not text.strip("\ufeff \t\r\n"):
        return None
    try:
        node = jsonc.find_jsonc_node(jsonc.parse_jsonc(text), path)
    except UnreadableSettings:
        return None
    return to_hashable_value(node.to_python_value()) if node is not None else None


def is_signalbox_object_at_path(text: str, path: tuple[str, ...], entries: SettingsEntries) -> bool:
    """Say whether the object at the path is ours, by what it calls."""
    node = jsonc.find_jsonc_node(jsonc.parse_jsonc(text), path) if text.strip("\ufeff \t\r\n") else None
    return node is not None and node.kind == "object" and entries.is_ours(node.to_python_value())


def to_hashable_value(value: Any) -> Any:
    plain = isinstance(value, str | int | float | bool | None)
    return value if plain else json.dumps(value, sort_keys=True)
