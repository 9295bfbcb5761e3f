"""Our tables in a person's TOML file: added, found again by what they hold, removed. Pure: text in, text out.

Programs that rewrite their settings move, drop and keep comments as they like. So a table is known as ours by its
values alone, wherever it is. `tomlkit` keeps what is not ours as it was written; it is loaded where something is
changed, and nowhere else. After each edit the result is read again, and refused where it does not say exactly what it
should.
"""

from __future__ import annotations

import copy
import json
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from coordinator.client.connecting.jsonc import UnreadableSettings

if TYPE_CHECKING:
    from tomlkit import TOMLDocument
    from tomlkit.container import Container

# What older versions wrote around their entries. Programs leave these lines anywhere, so they delimit nothing.
BEGIN, END = "# signalbox: begin (`signalbox disconnect` takes this out)", "# signalbox: end"
MARK = "# Signalbox's, put in by `signalbox connect` and taken out by `signalbox disconnect`:"
_CUT = "\0"  # marks where a table was taken out; TOML cannot hold it
_MARKS = re.compile(
    rf"^[ \t]*(?:{'|'.join(map(re.escape, (BEGIN, END, MARK)))})[ \t]*(?:\r?\n|\Z)", re.MULTILINE
)

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TomlValue:
    """A value that a TOML file is to hold before its first table, unless somebody has set another one there."""

    agent: str
    name: str
    value: int


@dataclass(frozen=True, slots=True)
class TomlTable:
    """A table that a TOML file is to hold.

    `is_ours` says whether an existing table at the path was put in by us. `secret` is the key where it holds it: only
    the file's owner may read it then. Without `is_whole` what others added to the table stays when ours goes.
    """

    agent: str
    path: Path
    values: Mapping[str, Any]
    is_ours: Callable[[Mapping[str, Any]], bool]
    secret: str = ""
    is_whole: bool = True

    @property
    def dotted_path(self) -> str:
        """The path as TOML writes it."""
        return ".".join(self.path)


def add_toml_table(text: str, table: TomlTable) -> str:
    """Return the settings with our table, once; the same text where it is there, or somebody else's is in its place.

    Raises UnreadableSettings where the settings are no TOML, or have no room for it.
    """
    document = load_toml(text)
    value = find_value_in_parsed_toml(document, table.path)
    if value is not None and not is_signalbox_toml_table(value, table):
        return text
    changed = {name: new for name, new in table.values.items() if value is None or value.get(name) != new}
    if not changed:
        return text
    after = append_toml_table(text, table) if value is None else update_toml_table(text, table, changed)
    holder = document
    for name in table.path:
        holder = holder.setdefault(name, {})
        if not isinstance(holder, dict):
            raise UnreadableSettings(f"{table.dotted_path} cannot be added to it")
    holder.update(changed)
    return require_expected_toml(after, document)


def remove_toml_table(text: str, table: TomlTable) -> str:
    """Return the settings without our table and the comments of older versions. Raises UnreadableSettings."""
    toml_document = load_toml(text)
    value = find_value_in_parsed_toml(toml_document, table.path)
    if value is None or not is_signalbox_toml_table(value, table):
        return text
    other_keys = (
        {}
        if table.is_whole
        else {key: item_value for key, item_value in value.items() if key not in table.values}
    )
    document, mark = parse_toml_document_and_bom(remove_marker_comments(text))
    delete_entries_in_toml_container(document, table.path, None if not other_keys else set(table.values))
    after = mark + remove_deletion_markers_from_text(document.as_string())
    delete_table_from_parsed_toml(toml_document, table.path, other_keys)
    return require_expected_toml(after, toml_document)


def add_toml_value_if_unset(text: str, value: TomlValue) -> str:
    """Return the settings with our value; the same text where one is set. Raises UnreadableSettings."""
    toml_document = load_toml(text)
    if value.name in toml_document:
        return text
    document, mark = parse_toml_document_and_bom(text)
    from tomlkit.items import AoT, Table, Whitespace  # noqa: PLC0415 - loaded with the document

    at = 0
    for index, (key, item) in enumerate(document.body):
        if isinstance(item, AoT) or (isinstance(item, Table) and not (key and key.is_dotted())):
            break
        at = index + 1 if key is not None else at
    glue = toml_line_ending(text) if at == len(document.body) and text and not text.endswith("\n") else ""
    document.body.insert(
        at, (None, Whitespace(f"{glue}{value.name} = {value.value}{toml_line_ending(text)}"))
    )
    return require_expected_toml(mark + document.as_string(), toml_document | {value.name: value.value})


def remove_toml_value(text: str, value: TomlValue) -> str:
    """Return the settings without our value; another one stays. Raises UnreadableSettings."""
    toml_document = load_toml(text)
    if toml_document.get(value.name) != value.value:
        return text
    document, mark = parse_toml_document_and_bom(text)
    delete_entries_in_toml_container(document, (value.name,), None)
    del toml_document[value.name]
    return require_expected_toml(mark + document.as_string(), toml_document)


def has_toml_key(text: str, value: TomlValue) -> bool:
    """Say whether the value is set there, to whatever. False where the text is no TOML."""
    return is_valid_toml(text) and value.name in load_toml(text)


def remove_marker_comments(text: str) -> str:
    """Return the text without the comments that older versions wrote around their entries."""
    return _MARKS.sub("", text)


def toml_conflict_reason_or_empty(text: str, table: TomlTable) -> str:
    """Return why our table cannot go into the settings, in words; "" where it can."""
    try:
        value = find_value_in_parsed_toml(load_toml(text), table.path)
    except UnreadableSettings as problem:
        return f"it is not TOML ({problem})"
    return (
        f"[{table.dotted_path}] is set there already"
        if value is not None and not is_signalbox_toml_table(value, table)
        else ""
    )


def is_toml_table_taken(text: str, table: TomlTable) -> bool:
    """Say whether somebody else's table is where ours would be. Raises UnreadableSettings."""
    value = find_value_in_parsed_toml(load_toml(text), table.path)
    return value is not None and not is_signalbox_toml_table(value, table)


def is_valid_toml(text: str) -> bool:
    """Say whether the text can be read as TOML."""
    try:
        load_toml(text)
    except UnreadableSettings:
        return False
    return True


def format_toml_table(table: TomlTable) -> str:
    """Return our table alone."""
    return append_toml_table("", table)


def is_signalbox_toml_table(value: Any, table: TomlTable) -> bool:
    return isinstance(value, dict) and table.is_ours(value)


def find_value_in_parsed_toml(value: Any, path: Path) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def load_toml(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text.removeprefix("\ufeff"))
    except (tomllib.TOMLDecodeError, RecursionError) as problem:
        raise UnreadableSettings(str(problem)) from None


def parse_toml_document_and_bom(text: str) -> tuple[TOMLDocument, str]:
    """Return the settings for an edit, and their byte order mark."""
    try:
        import tomlkit  # noqa: PLC0415 - only where something is changed
        from tomlkit.exceptions import TOMLKitError  # noqa: PLC0415
    except ImportError:
        raise UnreadableSettings("changing TOML needs one more package: pip install tomlkit") from None
    plain = text.removeprefix("\ufeff")
    try:
        document = tomlkit.parse(plain)
    except (TOMLKitError, RecursionError) as problem:
        raise UnreadableSettings(str(problem)) from None
    if document.as_string() != plain:
        raise UnreadableSettings("it could not be kept as it is written")
    return document, text[: len(text) - len(plain)]


def append_toml_table(text: str, table: TomlTable) -> str:
    line_end = toml_line_ending(text)
    lines = [
        f"[{table.dotted_path}]",
        *(f"{name} = {format_toml_value(value)}" for name, value in table.values.items()),
        "",
    ]
    glue = "" if not text or text.endswith("\n") else line_end
    return text + glue + (line_end if text.removeprefix("\ufeff") else "") + line_end.join(lines)


def format_toml_value(value: Any) -> str:
    """Return a value as TOML, in one line: JSON's form of texts, numbers and lists is TOML's, too."""
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{name} = {format_toml_value(inner_value)}' for name, inner_value in value.items())} }}"
    return json.dumps(value, ensure_ascii=False)


def update_toml_table(text: str, table: TomlTable, changed: Mapping[str, Any]) -> str:
    """Return the settings with these values in our table, which is there."""
    from tomlkit.items import Table  # noqa: PLC0415 - loaded with what follows

    document, mark = parse_toml_document_and_bom(text)
    holders: list[Container] = [document]
    for name in table.path:
        holders = [
            item.value
            for holder in holders
            for key, item in holder.body
            if key is not None and key.key == name and isinstance(item, Table)
        ]
    holder = next(
        (table_holder for table_holder in holders if any(key is not None for key, _ in table_holder.body)),
        None,
    )
    if holder is None:
        raise UnreadableSettings(f"{table.dotted_path} is not a table of its own there")
    for name, value in changed.items():
        if name in holder:
            holder[name] = build_toml_item(value)
        else:
            holder.append(name, build_toml_item(value))
    return mark + document.as_string()


def build_toml_item(value: Any) -> Any:
    import tomlkit  # noqa: PLC0415 - loaded already

    return tomlkit.value(format_toml_value(value))


def delete_entries_in_toml_container(holder: Container, path: Path, keys: set[str] | None) -> None:
    """Remove all parts of the table at the path, or only these keys of it.

    What follows its last line belongs to what comes next, so it stays.
    """
    from tomlkit.items import Table, Whitespace  # noqa: PLC0415 - loaded with the document

    for at, (key, item) in enumerate(holder.body):
        if key is None or key.key != path[0]:
            continue
        if len(path) > 1 or keys:
            if not isinstance(item, Table):
                raise UnreadableSettings(f"{path[0]} is not a table of its own there")
            if len(path) > 1:
                delete_entries_in_toml_container(item.value, path[1:], keys)
            for name in keys or () if len(path) == 1 else ():
                delete_entries_in_toml_container(item.value, (name,), None)
        else:
            behind = trailing_table_text(item.value) if isinstance(item, Table) else ""
            holder.body[at] = (None, Whitespace((_CUT if isinstance(item, Table) else "") + behind))


def trailing_table_text(holder: Container) -> str:
    """Return what follows the last entry of a table: blank lines and comments."""
    from tomlkit.items import Table  # noqa: PLC0415 - loaded with the document

    behind: list[str] = []
    for key, item in reversed(holder.body):
        if key is not None:
            last = trailing_table_text(item.value) if isinstance(item, Table) else ""
            return last + "".join(reversed(behind))
        behind.append(item.as_string())
    return "".join(reversed(behind))


def remove_deletion_markers_from_text(text: str) -> str:
    """Return the text without the marks of what was taken out, and without one blank line before each."""
    first, *parts = text.split(_CUT)
    for part in parts:
        if first.endswith("\r\n\r\n"):
            first = first[:-2]
        elif first.endswith("\n\n"):
            first = first[:-1]
        first += part
    return first


def delete_table_from_parsed_toml(table: dict[str, Any], path: Path, other_values: Mapping[str, Any]) -> None:
    """Take the table at the path out of the plain value; holders that it leaves empty go with it."""
    holders = [table]
    for name in path[:-1]:
        holders.append(holders[-1][name])
    if other_values:
        holders[-1][path[-1]] = dict(other_values)
        return
    del holders[-1][path[-1]]
    for at in range(len(path) - 2, -1, -1):
        if not holders[at + 1]:
            del holders[at][path[at]]


def require_expected_toml(after: str, expected: Mapping[str, Any]) -> str:
    """Return the text if it says just what is expected. Raises UnreadableSettings."""
    if to_comparable_json(load_toml(after)) != to_comparable_json(expected):
        raise UnreadableSettings("our table cannot be changed without changing what else is there")
    return after


def to_comparable_json(value: Any) -> str:
    def drop_empty_tables(table: Any) -> Any:
        if isinstance(table, dict):
            inner = {key: drop_empty_tables(item) for key, item in table.items()}
            return {key: item for key, item in inner.items() if item != {}}
        return [drop_empty_tables(item) for item in table] if isinstance(table, list) else table

    return json.dumps(drop_empty_tables(copy.deepcopy(value)), sort_keys=True, default=str)


def toml_line_ending(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"
