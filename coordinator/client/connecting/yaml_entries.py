"""Entries of ours in a mapping of somebody's YAML: put in, found again by what they hold, taken out. Pure.

`yaml` names the places; the edit is made in the text there, so comments and everything else keep every byte. Only
mappings with an entry on a line are edited, which is how Goose writes its own. Anything else is left alone. After
each edit the result is read again, and refused where it does not say exactly what it should.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from coordinator.client.connecting.jsonc import UnreadableSettings
from coordinator.client.connecting.toml_tables import remove_marker_comments

if TYPE_CHECKING:
    from yaml.nodes import MappingNode, Node


@dataclass(frozen=True, slots=True)
class YamlEntry:
    """An entry that a YAML file is to hold: `path` is the key of the mapping at the top, and the entry's own.

    `is_ours` says whether an existing entry there was put in by us.
    """

    agent: str
    path: tuple[str, str]
    values: Mapping[str, Any]
    is_ours: Callable[[Mapping[str, Any]], bool]


def add_yaml_entry(text: str, entry: YamlEntry) -> str:
    """Return the settings with our entry, once; the same text where somebody else's is in its place.

    What the agent added to our entry stays in it. Raises UnreadableSettings where there is no room for it.
    """
    group = find_entry_mapping_node(text, entry)
    value = find_yaml_value(text, entry)
    if value is not None:
        if not is_signalbox_yaml_entry(value, entry) or all(
            value.get(key) == new for key, new in entry.values.items()
        ):
            return text
        assert group is not None
        merged = {**value, **entry.values}
        start, end, _ = yaml_span_and_is_alone(text, group, entry.path[1])
        after = (
            text[:start]
            + format_indented_yaml_entry(entry, merged, mapping_indentation_text(group))
            + text[end:]
        )
        return require_expected_yaml(text, after, entry, merged)
    if group is None:
        line_end = yaml_line_ending(text)
        glue = "" if not text or text.endswith("\n") else line_end
        after = f"{text}{glue}{entry.path[0]}:{line_end}" + format_indented_yaml_entry(
            entry, entry.values, "  ", line_end
        )
        return require_expected_yaml(text, after, entry, entry.values)
    start = text.rfind("\n", 0, group.start_mark.index) + 1
    after = (
        text[:start]
        + format_indented_yaml_entry(
            entry, entry.values, mapping_indentation_text(group), yaml_line_ending(text)
        )
        + text[start:]
    )
    return require_expected_yaml(text, after, entry, entry.values)


def remove_yaml_entry(text: str, entry: YamlEntry) -> str:
    """Return the settings without our entry, and without the mapping that it leaves empty.

    Raises UnreadableSettings.
    """
    value = find_yaml_value(text, entry)
    if value is None or not is_signalbox_yaml_entry(value, entry):
        return text
    group = find_entry_mapping_node(text, entry)
    assert group is not None
    start, end, is_alone = yaml_span_and_is_alone(text, group, entry.path[1])
    between = ""  # the mapping's own line and the entry's: comments
    if is_alone:
        line = text.rfind("\n", 0, find_entry_mapping_key_offset(text, entry)) + 1
        between = text[text.index("\n", line) + 1 : start]
        start = line
    return require_expected_yaml(
        text, remove_marker_comments(text[:start] + between + text[end:]), entry, None
    )


def require_expected_yaml(before: str, after: str, entry: YamlEntry, values: Mapping[str, Any] | None) -> str:
    """Return the edited settings if they say what they said before, but for our entry, which is `values` or gone.

    Raises UnreadableSettings.
    """
    settings = load_yaml(before) or {}
    group = {
        name: value for name, value in (settings.get(entry.path[0]) or {}).items() if name != entry.path[1]
    }
    if values is not None:
        group[entry.path[1]] = dict(values)
    expected = {name: value for name, value in settings.items() if name != entry.path[0]}
    if group:
        expected[entry.path[0]] = group
    if (load_yaml(after) or {}) != expected:
        raise UnreadableSettings("our entry cannot be changed without changing what else is there")
    return after


def is_yaml_entry_taken(text: str, entry: YamlEntry) -> bool:
    """Say whether somebody else's entry is where ours would be. Raises UnreadableSettings."""
    value = find_yaml_value(text, entry)
    return value is not None and not is_signalbox_yaml_entry(value, entry)


def format_yaml_entry(entry: YamlEntry) -> str:
    """Return our entry alone, in its mapping."""
    return f"{entry.path[0]}:\n" + format_indented_yaml_entry(entry, entry.values, "  ")


def is_signalbox_yaml_entry(value: Any, entry: YamlEntry) -> bool:
    return isinstance(value, dict) and entry.is_ours(value)


def import_yaml() -> Any:
    try:
        import yaml  # noqa: PLC0415 - only where Goose is connected
    except ImportError:
        raise UnreadableSettings("changing YAML needs one more package: pip install pyyaml") from None
    return yaml


def load_yaml(text: str) -> Any:
    """Return the value of the text. Raises UnreadableSettings."""
    yaml = import_yaml()
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as problem:
        raise UnreadableSettings(" ".join(str(problem).split())) from None


def find_yaml_value(text: str, entry: YamlEntry) -> Any:
    value = load_yaml(text)
    for name in entry.path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def find_entry_mapping_key_offset(text: str, entry: YamlEntry) -> int:
    """Return where the name of the mapping is that our entry is in."""
    root = import_yaml().compose(text, Loader=import_yaml().SafeLoader)
    offset: int = next(key.start_mark.index for key, _ in root.value if key.value == entry.path[0])
    return offset


def find_entry_mapping_node(text: str, entry: YamlEntry) -> MappingNode | None:
    """Return the mapping that our entry belongs in; None where there is none. Raises UnreadableSettings."""
    yaml = import_yaml()
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, ValueError, RecursionError) as problem:
        raise UnreadableSettings(" ".join(str(problem).split())) from None
    if root is None:
        return None
    if not isinstance(root, yaml.MappingNode) or root.flow_style:
        raise UnreadableSettings("its settings are not a mapping with one entry on a line")
    for key, value in root.value:
        if key.value == entry.path[0]:
            if not isinstance(value, yaml.MappingNode) or value.flow_style:
                raise UnreadableSettings(f"its {entry.path[0]} are not on lines of their own")
            group: MappingNode = value
            return group
    return None


def yaml_span_and_is_alone(text: str, group: MappingNode, name: str) -> tuple[int, int, bool]:
    """Return where an entry's first line begins and its last one ends, and whether it is the only one."""
    key, value = next((key, value) for key, value in group.value if key.value == name)
    start = text.rfind("\n", 0, key.start_mark.index) + 1
    last = find_node_end_offset(value)
    at_line_end = text[last - 1 : last] == "\n"
    end = last if at_line_end else text.find("\n", last) + 1 or len(text)
    return start, end, len(group.value) == 1


def find_node_end_offset(node: Node) -> int:
    """Return where the last thing in a value ends; behind it there may be comments of somebody else's."""
    is_block = not getattr(node, "flow_style", True)
    inner = node.value[-1] if is_block and isinstance(node.value, list) and node.value else None
    if inner is None:
        index: int = node.end_mark.index
        return index
    return find_node_end_offset(inner[1] if isinstance(inner, tuple) else inner)


def mapping_indentation_text(group: MappingNode) -> str:
    return " " * group.start_mark.column


def format_indented_yaml_entry(
    entry: YamlEntry, values: Mapping[str, Any], indent: str, line_end: str = "\n"
) -> str:
    lines = [
        f"{indent}{entry.path[1]}:",
        *(f"{indent}  {key}: {json.dumps(entry_value)}" for key, entry_value in values.items()),
    ]
    return "".join(f"{line}{line_end}" for line in lines)


def yaml_line_ending(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"
