"""What connecting and disconnecting would change on this machine: found out first, shown, then done as one."""

from __future__ import annotations

import difflib
import os
import re
import socket
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from coordinator.client.connecting import files, jsonc, lines, merging, record, toml_tables, yaml_entries
from coordinator.client.connecting.files import FileRefused, Found
from coordinator.client.connecting.jsonc import Unreadable
from coordinator.client.connecting.lines import FormerLines
from coordinator.client.connecting.merging import Wanted
from coordinator.client.connecting.programs import TAKEN, Agent, Call
from coordinator.client.connecting.record import EditedFile
from coordinator.client.connecting.toml_tables import TomlTable, TomlValue
from coordinator.client.connecting.yaml_entries import YamlEntry

Entry = Wanted | FormerLines | TomlTable | TomlValue | YamlEntry
OWNERS = 0o700
_KEY = re.compile(r"sbx_[A-Za-z0-9_-]{6,}")


@dataclass(frozen=True, slots=True)
class UserHome:
    """Where people and agents keep things: the home folder and the environment.

    `working_folder` is the project that is looked at, too; "" for none.
    """

    home: str
    environment: Mapping[str, str]
    working_folder: str = ""

    def shown(self, path: str) -> str:
        """Return the path as people write it."""
        inside = path.startswith(self.home + os.sep)
        return "~" + path[len(self.home) :] if inside else path


@dataclass(frozen=True, slots=True)
class Change:
    """A file that would change: to `after` (None: deleted). `base` is it without us, what a disconnect brings back.

    Where it holds `secret`, only its owner may read it afterwards. `mode` is what it had before us, where it goes back.
    """

    agent: str
    found: Found
    after: bytes | None
    base: bytes | None = None
    secret: str = ""
    mode: int | None = None

    @property
    def is_one(self) -> bool:
        """Say whether anything would change."""
        return self.after != self.found.content or self.mode_after != self.found.mode

    @property
    def mode_after(self) -> int:
        """The mode that the file has then."""
        if self.mode is not None:
            return self.mode
        return self.found.mode & OWNERS if self.secret else self.found.mode

    def diff(self, place: UserHome) -> str:
        """Return the change as a unified diff; how lines end is shown where it is not a plain new line.

        The key is not shown. A mode that changes is a line of its own.
        """
        name = place.shown(self.found.path)
        before = "/dev/null" if self.found.content is None else name
        after = "/dev/null" if self.after is None else name
        lines = difflib.unified_diff(_lines(self.found.content), _lines(self.after), before, after)
        shown = [_KEY.sub("sbx_…", line.rstrip("\n")) for line in lines]
        if self.mode_after != self.found.mode and self.found.content is not None and self.after is not None:
            shown.append(f"{name}: mode {self.found.mode:o} becomes {self.mode_after:o}")
        return "\n".join(shown)


def _lines(content: bytes | None) -> list[str]:
    text = (content or b"").decode("utf-8", "replace").replace("\ufeff", "<BOM>")
    return [one.replace("\r", "␍") for one in text.split("\n")[: -1 if text.endswith("\n") else None]]


def to_connect(
    agent: Agent,
    call: Call,
    place: UserHome,
    kept: Mapping[str, EditedFile],
    *,
    plugin: str | None = None,
    former: Call | None = None,
    unknown_hooks: frozenset[str] = frozenset(),
) -> list[Change]:
    """Return what would change for the agent's hooks to call us; `former` is how they call us now.

    `unknown_hooks` are those that the installed program does not know; they are left away.

    Raises FileRefused; nothing is changed.
    """
    folder, changes = agent.folder(place.home, place.environment), []
    former = former or call
    if agent.file and agent.wanted:
        wanted = agent.wanted(call)
        hooks = {name: entry for name, entry in wanted.hooks.items() if name not in unknown_hooks}
        wanted = replace(wanted, hooks=hooks)
        changes.append(_merged(os.path.join(folder, agent.file), wanted, agent.wanted(former), kept))
    for own_lines in agent.former_lines:
        changes += _without_lines(os.path.join(folder, own_lines.path), own_lines, kept)
    changes += _with_servers(agent, (call, former), place, kept)
    for own in agent.own(call):
        changes.append(_whole(agent, os.path.join(folder, own.path), own.content, kept))
    if agent.plugin and plugin is not None:
        changes.append(_whole(agent, os.path.join(folder, agent.plugin), plugin, kept))
    for change in changes:
        if change.is_one:
            files.require_writable(change.found)
    return changes


def _merged(path: str, wanted: Wanted, former: Wanted, kept: Mapping[str, EditedFile]) -> Change:
    found, before = files.read(path), kept.get(path)
    try:
        after = merging.put_in(found.text, wanted, former).encode()
        if before is not None and before.is_untouched(found.content):
            base = before.original
        elif before is not None and found.content is not None:
            base = merging.take_out(found.text, former, _text(before.original)).encode()
        else:
            base = found.content
    except Unreadable as problem:
        raise _refusal(path, problem) from None
    return Change(wanted.agent, found, after, base)


def _refusal(path: str, problem: Unreadable) -> FileRefused:
    return FileRefused(f"{path} cannot be changed: {problem}. Fix that, then try again. Nothing was changed.")


def _without_lines(path: str, former: FormerLines, kept: Mapping[str, EditedFile]) -> list[Change]:
    """Return the change that takes an older version's lines out of a file."""
    found, before = files.read(path), kept.get(path)
    rest = lines.take_out(found.text, former)
    if found.content is None or rest == found.text:
        return []
    if before is not None and before.is_untouched(found.content):
        return [Change(former.agent, found, before.original, before.original, mode=before.mode)]
    return [Change(former.agent, found, rest.encode(), rest.encode(), mode=before.mode if before else None)]


def _with_servers(
    agent: Agent, calls: tuple[Call, Call], place: UserHome, kept: Mapping[str, EditedFile]
) -> list[Change]:
    """Return what gives the agent the gateway and the table of its telemetry, or takes them away.

    `calls` are the new call and the former one.
    """
    call, former = calls
    path = agent.mcp_path(place.home, place.environment)
    if path is None or agent.mcp is None:
        return []
    wanted, was = agent.mcp(call), agent.mcp(former)
    if isinstance(wanted, TomlTable):
        assert isinstance(was, TomlTable)
        entries: list[tuple[TomlTable | YamlEntry, TomlTable | YamlEntry, bool]] = []
        # Telemetry comes first: `codex mcp add` drops comments before MCP servers, which may be a person's last ones.
        if agent.telemetry:
            sends = not why_no_telemetry(agent, call, place, former)
            entries.append((agent.telemetry(call), agent.telemetry(former), sends))
        return _with_entries(path, [*entries, (wanted, was, call.gateway)], kept, agent.toml_value)
    if isinstance(wanted, YamlEntry):
        assert isinstance(was, YamlEntry)
        return _with_entries(path, [(wanted, was, call.gateway)], kept)
    assert isinstance(was, Wanted)
    if call.gateway:
        return [_merged(path, wanted, was, kept)]
    return [to_disconnect(path, kept[path], [was])[0]] if path in kept else []


def _with_entries(
    path: str,
    entries: Sequence[tuple[TomlTable | YamlEntry, TomlTable | YamlEntry, bool]],
    kept: Mapping[str, EditedFile],
    value: TomlValue | None = None,
) -> list[Change]:
    """Return the change of a file that is to hold these tables or entries, or, where one is not wanted, to lose it.

    Each comes with what it was formerly, and whether it is wanted. `value` is to stand there in any case. A file that
    the agent cannot read is left alone.
    """
    found, before = files.read(path), kept.get(path)
    if any(isinstance(wanted, TomlTable) for wanted, _, _ in entries) and not toml_tables.is_toml(found.text):
        return []
    after = base = found.text
    try:
        for wanted, was, wants in entries:
            without = take_out(take_out(base, wanted), was)
            if not wants:
                after = take_out(take_out(after, wanted), was)
            elif not _is_taken(after, wanted):
                after = put_in(after, wanted)
            elif not _is_taken(after, was):
                after = put_in(take_out(after, was), wanted)
            base = without
        if value is not None:
            # Where we never wrote, the same value is the person's own.
            is_theirs = before is None and base == found.text
            is_theirs = is_theirs or (before is not None and has_value(before, value))
            base = base if is_theirs else toml_tables.take_out_value(base, value)
            after = toml_tables.put_in_value(after, value)
    except Unreadable as problem:
        if isinstance(entries[0][0], YamlEntry):
            return []
        raise _refusal(path, problem) from None
    if before is None and after == found.text == base:
        return []  # nothing of ours is there, and nothing is wanted
    if before is not None and (found.content is None or before.is_untouched(found.content)):
        original = before.original
    else:
        original = base.encode() if found.content is not None else None
    secret = "".join(one.secret for one, _, wants in entries if isinstance(one, TomlTable) and wants)
    return [Change(entries[0][0].agent, found, after.encode(), original, secret)]


def has_value(before: EditedFile, value: TomlValue) -> bool:
    """Say whether the value was set, to whatever, before we changed the file."""
    return toml_tables.has_value(_text(before.original), value)


def put_in(text: str, wanted: TomlTable | YamlEntry) -> str:
    """Return the settings with a table or an entry. Raises Unreadable."""
    return (
        toml_tables.put_in(text, wanted)
        if isinstance(wanted, TomlTable)
        else yaml_entries.put_in(text, wanted)
    )


def take_out(text: str, wanted: TomlTable | YamlEntry) -> str:
    """Return the settings without a table or an entry. Raises Unreadable."""
    if isinstance(wanted, TomlTable):
        return toml_tables.take_out(text, wanted)
    return yaml_entries.take_out(text, wanted)


def _is_taken(text: str, wanted: TomlTable | YamlEntry) -> bool:
    if isinstance(wanted, TomlTable):
        return toml_tables.is_taken(text, wanted)
    return yaml_entries.is_taken(text, wanted)


def why_no_telemetry(agent: Agent, call: Call, place: UserHome, former: Call | None = None) -> str:
    """Return why the agent's telemetry cannot come here though its hooks can, in words; "" where nothing is wrong."""
    path = agent.mcp_path(place.home, place.environment)
    if agent.telemetry is None or path is None:
        return ""
    wanted = agent.telemetry(call)
    if wanted.secret and (reason := files.why_no_key(path, place.home)):
        return f"{place.shown(path)} is left as it is: {reason}"
    text = files.read(path).text
    reason = toml_tables.why_not(text, wanted)
    if reason and former and not toml_tables.why_not(text, agent.telemetry(former)):
        return ""
    return f"{place.shown(path)} is left as it is: {reason}" if reason else ""


def _whole(agent: Agent, path: str, content: str, kept: Mapping[str, EditedFile]) -> Change:
    found, before = files.read(path), kept.get(path)
    if found.content is not None and before is None and found.content != content.encode():
        raise FileRefused(
            f"{path} exists already and was not made by Signalbox. Move it away, then try again."
        )
    return Change(agent.name, found, content.encode(), before.original if before else None)


def notes_of(agent: Agent, call: Call, place: UserHome) -> list[str]:
    """Return what prevents the agent's hooks or telemetry, in words."""
    folder, notes = agent.folder(place.home, place.environment), []
    files_of_project = [
        (os.path.join(parent, name), path, value)
        for parent in _parents(place.working_folder)
        for name, path, value in agent.project_switches
    ]
    own = [(os.path.join(folder, name), path, value) for name, path, value in agent.switches]
    for file, path, value in dict.fromkeys((*own, *files_of_project)):
        settings = _settings_in(file)
        for step in path:
            settings = settings.get(step) if isinstance(settings, dict) else None
        if settings is not None and settings == value:
            notes.append(
                f"{'.'.join(path)} in {place.shown(file)} switches all hooks off. Nothing is reported or held."
            )
    if agent.file and agent.wanted:
        wanted = agent.wanted(call)
        with suppress(FileRefused, Unreadable):
            text = files.read(os.path.join(folder, agent.file)).text
            if text.strip() and merging.gives_way(text, wanted):
                notes.append(f"{wanted.given_way[:1].upper()}{wanted.given_way[1:]}.")
    servers = agent.mcp_path(place.home, place.environment)
    if (
        call.gateway
        and servers is not None
        and agent.mcp is not None
        and _gives_way(servers, agent.mcp(call))
    ):
        notes.append(f"{place.shown(servers)}: {TAKEN}.")
    with suppress(FileRefused):
        if reason := why_no_telemetry(agent, call, place):
            notes.append(f"{reason}. So Signalbox will not see {agent.title}'s tokens.")
    return notes


def restart_command(agent: Agent, place: UserHome) -> str:
    """Return the command that restarts the agent's background server; "" where none runs."""
    if agent.background is None:
        return ""
    name, command = agent.background
    path = os.path.join(agent.folder(place.home, place.environment), name)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
        except (ConnectionRefusedError, FileNotFoundError):
            return ""
        except OSError:  # the path is too long for an address, or it is busy
            return command if os.path.exists(path) else ""
    return command


def _parents(folder: str) -> list[str]:
    """Return the folder and those that it lies in; agents look for a project's settings in some of them."""
    folders = [folder] if folder else []
    while folders and os.path.dirname(folders[-1]) != folders[-1]:
        folders.append(os.path.dirname(folders[-1]))
    return folders


def _gives_way(path: str, wanted: Wanted | TomlTable | YamlEntry) -> bool:
    """Say whether somebody else's server has our name there."""
    with suppress(FileRefused, Unreadable):
        text = files.read(path).text
        if isinstance(wanted, TomlTable | YamlEntry):
            return _is_taken(text, wanted)
        return bool(text.strip()) and merging.gives_way(text, wanted)
    return False


def _settings_in(path: str) -> Any:
    with suppress(FileRefused, Unreadable, tomllib.TOMLDecodeError):
        text = files.read(path).text
        if text.strip():
            return tomllib.loads(text) if path.endswith(".toml") else jsonc.loads(text)
    return None


def to_disconnect(path: str, kept: EditedFile, wanted: Sequence[Entry]) -> tuple[Change, bool]:
    """Return what would change for a file to be without us, and whether it then is exactly what it was before.

    `wanted` are the entries that we put in; none for a file of our own. Raises FileRefused.
    """
    found = files.read(path)
    if found.content is None or kept.is_untouched(found.content) or found.content == kept.original:
        after, exact = (kept.original, True) if found.content is not None else (None, kept.original is None)
    elif not wanted:
        after, exact = None, False
    else:
        try:
            text = found.text
            for one in wanted:
                text = _without(text, one, kept)
        except Unreadable as problem:
            raise FileRefused(
                f"{path} cannot be read: {problem}. Remove Signalbox's hooks by hand."
            ) from None
        empty = kept.original is None and _is_empty(text)
        after, exact = (None if empty else text.encode()), False
    change = Change(kept.agent, found, after, mode=kept.mode if after is not None else None)
    if change.is_one:
        files.require_writable(found)
    return change, exact


def _without(text: str, wanted: Entry, kept: EditedFile) -> str:
    if isinstance(wanted, TomlTable | YamlEntry):
        return take_out(text, wanted)
    if isinstance(wanted, TomlValue):
        return text if has_value(kept, wanted) else toml_tables.take_out_value(text, wanted)
    if isinstance(wanted, FormerLines):
        return lines.take_out(text, wanted)
    return merging.take_out(text, wanted, _text(kept.original))


def _is_empty(text: str) -> bool:
    return text.strip("\ufeff \t\r\n") in {"", "{}"}


def _text(content: bytes | None) -> str:
    return (content or b"").decode("utf-8", "replace")


def carry_out(changes: Iterable[Change], kept: dict[str, EditedFile], *, connects: bool) -> None:
    """Write all changes or none, and the record with them. Raises FileRefused and OSError."""
    done: list[tuple[Change, list[str]]] = []
    before = dict(kept)
    try:
        for change in changes:
            # The record comes first: a file that is changed and not in it could never be put back.
            if connects and change.after is not None:
                kept[change.found.path] = _kept(change, change.after, kept.get(change.found.path))
                record.save(kept)
            made = files.write(change.found, change.after, change.mode_after) if change.is_one else []
            done.append((change, made))
            if connects and made:
                kept[change.found.path] = replace(kept[change.found.path], folders=made)
                record.save(kept)
    except (OSError, FileRefused):
        _undo(done)
        record.save(before)
        raise
    if not connects:
        gone = [(change, kept.pop(change.found.path)) for change, _ in done]
        record.save(kept)
        files.remove_folders([one for change, was in gone if change.after is None for one in was.folders])


def _kept(change: Change, after: bytes, known: EditedFile | None) -> EditedFile:
    mode = known.mode if known else change.found.mode if change.secret else None
    return EditedFile(change.agent, change.base, record.digest(after), known.folders if known else [], mode)


def _undo(done: list[tuple[Change, list[str]]]) -> None:
    for change, made in reversed(done):
        if change.is_one:
            with suppress(OSError, FileRefused):
                now = files.read(change.found.path)
                files.write(Found(now.path, now.target, now.content, change.found.mode), change.found.content)
                files.remove_folders(made)
