"""Reading of an Agent Coordinator's blueprints and capabilities, which it keeps as files next to its database.

A blueprint is a folder in `agents/` with `agent.json`, and perhaps `agent.system-prompt.md`, `agent.mcp.json` and
`.disabled`. A capability is a folder in `capabilities/`, which is next to `agents/`, with `capability.json`, and
perhaps `capability.text.md` and `capability.mcp.json`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

MAX_FILE_BYTES = 2 * 1024**2
MAX_FOLDERS = 5_000  # of each kind
SERVER_KEYS = {"stdio": "command", "http": "url"}  # what a server of a type must have


class ServerFields(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """An MCP server as a file describes it. Without `type`, its command or its address says which it is."""

    type: str | None = None
    command: str | None = None
    args: list[str] | None = None
    env: dict[str, str] | None = None
    url: str | None = None
    headers: dict[str, str] | None = None


class DemandFields(msgspec.Struct, omit_defaults=True):
    """What a blueprint demands of its runner."""

    hostname: str | None = None
    project_dir: str | None = None
    executor_profile: str | None = None
    executor_type: str | None = None
    tags: list[str] = []


class BlueprintFields(msgspec.Struct, omit_defaults=True):
    """What of `agent.json` has a place here."""

    name: str
    description: str
    type: str | None = None
    parameters_schema: dict[str, Any] | None = None
    skills: list[str] | None = None
    tags: list[str] | None = None
    capabilities: list[str] | None = None
    demands: DemandFields | None = None


class CapabilityFields(msgspec.Struct, omit_defaults=True):
    """What of `capability.json` has a place here."""

    name: str
    description: str
    type: str | None = None
    script: str | None = None


@dataclass(frozen=True, slots=True)
class FileKind:
    """One of the two kinds of folders."""

    table: str  # of ours
    folder: str
    stem: str  # of its files' names
    fields: type[BlueprintFields] | type[CapabilityFields]
    types: frozenset[str]
    text_file: str
    text_field: str


CAPABILITIES = FileKind(
    "capabilities",
    "capabilities",
    "capability",
    CapabilityFields,
    frozenset({"text", "mcp", "script"}),
    "capability.text.md",
    "text",
)
BLUEPRINTS = FileKind(
    "blueprints",
    "agents",
    "agent",
    BlueprintFields,
    frozenset({"autonomous", "procedural"}),
    "agent.system-prompt.md",
    "system_prompt",
)
KINDS = (CAPABILITIES, BLUEPRINTS)  # in the order in which they are imported: blueprints name capabilities


@dataclass(slots=True)
class BlueprintFile:
    """A folder that was read: `fields` as our columns hold them, or the `problem` that its files have."""

    name: str
    raw: dict[str, Any] = field(default_factory=dict)
    fields: dict[str, Any] = field(default_factory=dict)
    enabled: bool = True
    unplaced: dict[str, Any] = field(default_factory=dict)  # what has no place here
    problem: str = ""


class UnreadableFolder(Exception):
    """A file of the folder cannot be imported; the message says why."""


def blueprints_folder_of_database(database: Path) -> Path:
    """Return where the coordinator that wrote the database keeps its blueprints by default."""
    return database.absolute().parent / BLUEPRINTS.folder


def iterate_blueprint_files(agents_folder: Path, kind: FileKind) -> Iterator[BlueprintFile]:
    """Yield each folder of a kind, by name. Folders without the kind's JSON file are none of its."""
    folder = agents_folder if kind is BLUEPRINTS else agents_folder.parent / kind.folder
    try:
        paths = sorted(path for path in folder.iterdir() if (path / f"{kind.stem}.json").exists())
    except OSError:
        return
    for number, path in enumerate(paths):
        found_file = BlueprintFile(path.name)
        try:
            if number >= MAX_FOLDERS:
                raise UnreadableFolder(f"there are more than {MAX_FOLDERS:,} folders")
            fill_blueprint_file_from_folder(path, kind, found_file)
        except UnreadableFolder as problem:
            found_file.problem = str(problem)
        yield found_file


def fill_blueprint_file_from_folder(path: Path, kind: FileKind, found_file: BlueprintFile) -> None:
    raw = read_json_object(path / f"{kind.stem}.json")
    found_file.raw.update(raw)
    try:
        fields = msgspec.convert(raw, kind.fields)
    except msgspec.ValidationError as problem:
        raise UnreadableFolder(f"{kind.stem}.json: {problem}") from None
    if fields.type is not None and fields.type not in kind.types:
        raise UnreadableFolder(f"{kind.stem}.json: there is no type {fields.type[:40]!r}")
    found_file.name = fields.name
    found_file.fields = {name: value for name, value in msgspec.to_builtins(fields).items() if name != "name"}
    found_file.unplaced = {
        name: value for name, value in raw.items() if name not in kind.fields.__struct_fields__
    }
    if text := read_file_text(path / kind.text_file):
        found_file.raw[kind.text_file] = found_file.fields[kind.text_field] = text
    servers_path = path / f"{kind.stem}.mcp.json"
    if servers_path.exists():
        found_file.raw[servers_path.name] = servers_file = read_json_object(servers_path)
        add_servers_to_blueprint_file(servers_file.get("mcpServers"), found_file)
    found_file.enabled = not (path / ".disabled").exists()


def add_servers_to_blueprint_file(servers: Any, found_file: BlueprintFile) -> None:
    """Take the servers that have a form of ours, and name the others as unplaced."""
    placed = {}
    for name, server in (servers if isinstance(servers, dict) else {}).items():
        try:
            shape = msgspec.convert(server, ServerFields)
        except msgspec.ValidationError:
            shape = ServerFields()
        shape.type = shape.type or ("stdio" if shape.command else "http")
        if getattr(shape, SERVER_KEYS.get(shape.type, "type")) and shape.type in SERVER_KEYS:
            placed[name] = msgspec.to_builtins(shape)
        else:
            found_file.unplaced[f"MCP server {name}"] = server
    if placed:
        found_file.fields["mcp_servers"] = placed


def read_json_object(path: Path) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(read_file_bytes(path))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise UnreadableFolder(f"{path.name} is no JSON: {problem}") from None
    if not isinstance(value, dict):
        raise UnreadableFolder(f"{path.name} holds no JSON object")
    return value


def read_file_text(path: Path) -> str:
    """Return the file's text; empty where there is no file."""
    try:
        return read_file_bytes(path).decode() if path.exists() else ""
    except UnicodeDecodeError:
        raise UnreadableFolder(f"{path.name} is not UTF-8") from None


def read_file_bytes(path: Path) -> bytes:
    """Return a file's bytes. A link may lead anywhere, so it is not followed out of the folder's own."""
    try:
        if not path.resolve().is_relative_to(path.parent.parent.resolve()) or not path.is_file():
            raise UnreadableFolder(f"{path.name} is no file of this folder")
        with path.open("rb") as file:
            raw = file.read(MAX_FILE_BYTES + 1)
    except (OSError, RuntimeError) as problem:
        raise UnreadableFolder(f"{path.name} cannot be read: {problem}") from None
    if len(raw) > MAX_FILE_BYTES:
        raise UnreadableFolder(f"{path.name} is larger than {MAX_FILE_BYTES // 1024**2} MiB")
    return raw
