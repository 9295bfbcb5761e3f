"""Plans of what connecting and disconnecting change on this machine: made first, shown, then applied as one."""

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
from coordinator.client.connecting.connectable_agents import TAKEN, ConnectableAgent, HookInvocation
from coordinator.client.connecting.files import FileRefused, FileSnapshot
from coordinator.client.connecting.jsonc import UnreadableSettings
from coordinator.client.connecting.lines import FormerLines
from coordinator.client.connecting.merging import SettingsEntries
from coordinator.client.connecting.record import EditedFile
from coordinator.client.connecting.toml_tables import TomlTable, TomlValue
from coordinator.client.connecting.yaml_entries import YamlEntry

Entry = SettingsEntries | FormerLines | TomlTable | TomlValue | YamlEntry
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

    def shorten_home_path(self, path: str) -> str:
        """Return the path as people write it."""
        inside = path.startswith(self.home + os.sep)
        return "~" + path[len(self.home) :] if inside else path


@dataclass(frozen=True, slots=True)
class FileChange:
    """A file that would change: to `after` (None: deleted). `base` is it without us, what a disconnect brings back.

    Where it holds `secret`, only its owner may read it afterwards. `mode` is what it had before us, where it goes back.
    """

    agent: str
    snapshot: FileSnapshot
    after: bytes | None
    base: bytes | None = None
    secret: str = ""
    mode: int | None = None

    @property
    def has_effect(self) -> bool:
        """Say whether anything would change."""
        return self.after != self.snapshot.content or self.resulting_file_mode != self.snapshot.mode

    @property
    def resulting_file_mode(self) -> int:
        """The mode that the file has then."""
        if self.mode is not None:
            return self.mode
        return self.snapshot.mode & OWNERS if self.secret else self.snapshot.mode

    def format_file_diff(self, home: UserHome) -> str:
        """Return the change as a unified diff; how lines end is shown where it is not a plain new line.

        The key is not shown. A mode that changes is a line of its own.
        """
        name = home.shorten_home_path(self.snapshot.path)
        before = "/dev/null" if self.snapshot.content is None else name
        after = "/dev/null" if self.after is None else name
        lines = difflib.unified_diff(
            split_content_for_diff(self.snapshot.content), split_content_for_diff(self.after), before, after
        )
        masked_lines = [_KEY.sub("sbx_…", line.rstrip("\n")) for line in lines]
        if (
            self.resulting_file_mode != self.snapshot.mode
            and self.snapshot.content is not None
            and self.after is not None
        ):
            masked_lines.append(f"{name}: mode {self.snapshot.mode:o} becomes {self.resulting_file_mode:o}")
        return "\n".join(masked_lines)


def split_content_for_diff(content: bytes | None) -> list[str]:
    text = (content or b"").decode("utf-8", "replace").replace("\ufeff", "<BOM>")
    return [
        diff_line.replace("\r", "␍") for diff_line in text.split("\n")[: -1 if text.endswith("\n") else None]
    ]


def plan_connect_changes(
    agent: ConnectableAgent,
    call: HookInvocation,
    home: UserHome,
    edited_files: Mapping[str, EditedFile],
    *,
    plugin: str | None = None,
    former: HookInvocation | None = None,
    unknown_hooks: frozenset[str] = frozenset(),
) -> list[FileChange]:
    """Return what would change for the agent's hooks to call us; `former` is how they call us now.

    `unknown_hooks` are those that the installed program does not know; they are left away.

    Raises FileRefused; nothing is changed.
    """
    folder, changes = agent.settings_folder(home.home, home.environment), []
    former = former or call
    if agent.file and agent.build_entries:
        wanted_entries = agent.build_entries(call)
        hooks = {name: entry for name, entry in wanted_entries.hooks.items() if name not in unknown_hooks}
        wanted_entries = replace(wanted_entries, hooks=hooks)
        changes.append(
            plan_merged_settings(
                os.path.join(folder, agent.file), wanted_entries, agent.build_entries(former), edited_files
            )
        )
    for own_lines in agent.former_lines:
        changes += plan_former_variable_lines_removal(
            os.path.join(folder, own_lines.path), own_lines, edited_files
        )
    changes += plan_gateway_and_telemetry_changes(agent, (call, former), home, edited_files)
    for own in agent.own(call):
        changes.append(plan_generated_file(agent, os.path.join(folder, own.path), own.content, edited_files))
    if agent.plugin and plugin is not None:
        changes.append(plan_generated_file(agent, os.path.join(folder, agent.plugin), plugin, edited_files))
    for change in changes:
        if change.has_effect:
            files.require_replaceable_file(change.snapshot)
    return changes


def plan_merged_settings(
    path: str, entries: SettingsEntries, former: SettingsEntries, edited_files: Mapping[str, EditedFile]
) -> FileChange:
    file_snapshot, before = files.read_file_snapshot(path), edited_files.get(path)
    try:
        after = merging.merge_entries_into_settings_text(file_snapshot.decoded_text, entries, former).encode()
        if before is not None and before.is_content_as_written(file_snapshot.content):
            base = before.original
        elif before is not None and file_snapshot.content is not None:
            base = merging.remove_settings_entries(
                file_snapshot.decoded_text, former, decode_original_content_leniently(before.original)
            ).encode()
        else:
            base = file_snapshot.content
    except UnreadableSettings as problem:
        raise build_settings_edit_error(path, problem) from None
    return FileChange(entries.agent, file_snapshot, after, base)


def build_settings_edit_error(path: str, problem: UnreadableSettings) -> FileRefused:
    return FileRefused(f"{path} cannot be changed: {problem}. Fix that, then try again. Nothing was changed.")


def plan_former_variable_lines_removal(
    path: str, former: FormerLines, edited_files: Mapping[str, EditedFile]
) -> list[FileChange]:
    """Return the change that takes an older version's lines out of a file."""
    file_snapshot, before = files.read_file_snapshot(path), edited_files.get(path)
    rest = lines.remove_former_variable_lines(file_snapshot.decoded_text, former)
    if file_snapshot.content is None or rest == file_snapshot.decoded_text:
        return []
    if before is not None and before.is_content_as_written(file_snapshot.content):
        return [FileChange(former.agent, file_snapshot, before.original, before.original, mode=before.mode)]
    return [
        FileChange(
            former.agent, file_snapshot, rest.encode(), rest.encode(), mode=before.mode if before else None
        )
    ]


def plan_gateway_and_telemetry_changes(
    agent: ConnectableAgent,
    calls: tuple[HookInvocation, HookInvocation],
    home: UserHome,
    edited_files: Mapping[str, EditedFile],
) -> list[FileChange]:
    """Return what gives the agent the gateway and the table of its telemetry, or takes them away.

    `calls` are the new call and the former one.
    """
    call, former = calls
    path = agent.separate_mcp_path_or_none(home.home, home.environment)
    if path is None or agent.mcp is None:
        return []
    mcp_entries, was = agent.mcp(call), agent.mcp(former)
    if isinstance(mcp_entries, TomlTable):
        assert isinstance(was, TomlTable)
        entries: list[tuple[TomlTable | YamlEntry, TomlTable | YamlEntry, bool]] = []
        # Telemetry comes first: `codex mcp add` drops comments before MCP servers, which may be a person's last ones.
        if agent.telemetry:
            sends = not find_telemetry_problem_or_empty(agent, call, home, former)
            entries.append((agent.telemetry(call), agent.telemetry(former), sends))
        return plan_toml_or_yaml_change(
            path, [*entries, (mcp_entries, was, call.gateway)], edited_files, agent.toml_value
        )
    if isinstance(mcp_entries, YamlEntry):
        assert isinstance(was, YamlEntry)
        return plan_toml_or_yaml_change(path, [(mcp_entries, was, call.gateway)], edited_files)
    assert isinstance(was, SettingsEntries)
    if call.gateway:
        return [plan_merged_settings(path, mcp_entries, was, edited_files)]
    return [plan_disconnect_change(path, edited_files[path], [was])[0]] if path in edited_files else []


def plan_toml_or_yaml_change(
    path: str,
    entries: Sequence[tuple[TomlTable | YamlEntry, TomlTable | YamlEntry, bool]],
    edited_files: Mapping[str, EditedFile],
    value: TomlValue | None = None,
) -> list[FileChange]:
    """Return the change of a file that is to hold these tables or entries, or, where one is not wanted, to lose it.

    Each comes with what it was formerly, and whether it is wanted. `value` is to be there in any case. A file that
    the agent cannot read is left alone.
    """
    file_snapshot, before = files.read_file_snapshot(path), edited_files.get(path)
    if any(
        isinstance(wanted_entry, TomlTable) for wanted_entry, _, _ in entries
    ) and not toml_tables.is_valid_toml(file_snapshot.decoded_text):
        return []
    after = base = file_snapshot.decoded_text
    try:
        for wanted_entry, was, wants in entries:
            without = remove_entry_from_settings_text(
                remove_entry_from_settings_text(base, wanted_entry), was
            )
            if not wants:
                after = remove_entry_from_settings_text(
                    remove_entry_from_settings_text(after, wanted_entry), was
                )
            elif not is_entry_name_taken(after, wanted_entry):
                after = add_entry_to_settings_text(after, wanted_entry)
            elif not is_entry_name_taken(after, was):
                after = add_entry_to_settings_text(remove_entry_from_settings_text(after, was), wanted_entry)
            base = without
        if value is not None:
            # Where we never wrote, the same value is the person's own.
            is_theirs = before is None and base == file_snapshot.decoded_text
            is_theirs = is_theirs or (before is not None and had_value_before_connecting(before, value))
            base = base if is_theirs else toml_tables.remove_toml_value(base, value)
            after = toml_tables.add_toml_value_if_unset(after, value)
    except UnreadableSettings as problem:
        if isinstance(entries[0][0], YamlEntry):
            return []
        raise build_settings_edit_error(path, problem) from None
    if before is None and after == file_snapshot.decoded_text == base:
        return []  # nothing of ours is there, and nothing is wanted
    if before is not None and (
        file_snapshot.content is None or before.is_content_as_written(file_snapshot.content)
    ):
        original = before.original
    else:
        original = base.encode() if file_snapshot.content is not None else None
    secret = "".join(
        toml_table.secret for toml_table, _, wants in entries if isinstance(toml_table, TomlTable) and wants
    )
    return [FileChange(entries[0][0].agent, file_snapshot, after.encode(), original, secret)]


def had_value_before_connecting(before: EditedFile, value: TomlValue) -> bool:
    """Say whether the value was set, to whatever, before we changed the file."""
    return toml_tables.has_toml_key(decode_original_content_leniently(before.original), value)


def add_entry_to_settings_text(text: str, entry: TomlTable | YamlEntry) -> str:
    """Return the settings with a table or an entry. Raises UnreadableSettings."""
    return (
        toml_tables.add_toml_table(text, entry)
        if isinstance(entry, TomlTable)
        else yaml_entries.add_yaml_entry(text, entry)
    )


def remove_entry_from_settings_text(text: str, entry: TomlTable | YamlEntry) -> str:
    """Return the settings without a table or an entry. Raises UnreadableSettings."""
    if isinstance(entry, TomlTable):
        return toml_tables.remove_toml_table(text, entry)
    return yaml_entries.remove_yaml_entry(text, entry)


def is_entry_name_taken(text: str, entry: TomlTable | YamlEntry) -> bool:
    if isinstance(entry, TomlTable):
        return toml_tables.is_toml_table_taken(text, entry)
    return yaml_entries.is_yaml_entry_taken(text, entry)


def find_telemetry_problem_or_empty(
    agent: ConnectableAgent, call: HookInvocation, home: UserHome, former: HookInvocation | None = None
) -> str:
    """Return why the agent's telemetry cannot come here though its hooks can, in words; "" where nothing is wrong."""
    path = agent.separate_mcp_path_or_none(home.home, home.environment)
    if agent.telemetry is None or path is None:
        return ""
    wanted_entries = agent.telemetry(call)
    if wanted_entries.secret and (reason := files.key_write_problem_or_empty(path, home.home)):
        return f"{home.shorten_home_path(path)} is left as it is: {reason}"
    text = files.read_file_snapshot(path).decoded_text
    reason = toml_tables.toml_conflict_reason_or_empty(text, wanted_entries)
    if reason and former and not toml_tables.toml_conflict_reason_or_empty(text, agent.telemetry(former)):
        return ""
    return f"{home.shorten_home_path(path)} is left as it is: {reason}" if reason else ""


def plan_generated_file(
    agent: ConnectableAgent, path: str, content: str, edited_files: Mapping[str, EditedFile]
) -> FileChange:
    file_snapshot, before = files.read_file_snapshot(path), edited_files.get(path)
    if file_snapshot.content is not None and before is None and file_snapshot.content != content.encode():
        raise FileRefused(
            f"{path} exists already and was not made by Signalbox. Move it away, then try again."
        )
    return FileChange(agent.name, file_snapshot, content.encode(), before.original if before else None)


def describe_hook_obstacles(agent: ConnectableAgent, call: HookInvocation, home: UserHome) -> list[str]:
    """Return what prevents the agent's hooks or telemetry, in words."""
    folder, notes = agent.settings_folder(home.home, home.environment), []
    files_of_project = [
        (os.path.join(parent, name), path, value)
        for parent in list_folder_and_its_parents(home.working_folder)
        for name, path, value in agent.project_switches
    ]
    own = [(os.path.join(folder, name), path, value) for name, path, value in agent.switches]
    for file, path, value in dict.fromkeys((*own, *files_of_project)):
        settings = load_agent_settings_or_none(file)
        for step in path:
            settings = settings.get(step) if isinstance(settings, dict) else None
        if settings is not None and settings == value:
            notes.append(
                f"{'.'.join(path)} in {home.shorten_home_path(file)} switches all hooks off. Nothing is"
                " reported or held."
            )
    if agent.file and agent.build_entries:
        wanted_entries = agent.build_entries(call)
        with suppress(FileRefused, UnreadableSettings):
            text = files.read_file_snapshot(os.path.join(folder, agent.file)).decoded_text
            if text.strip() and merging.has_conflicting_values(text, wanted_entries):
                notes.append(f"{wanted_entries.given_way[:1].upper()}{wanted_entries.given_way[1:]}.")
    servers = agent.separate_mcp_path_or_none(home.home, home.environment)
    if (
        call.gateway
        and servers is not None
        and agent.mcp is not None
        and is_mcp_server_name_taken(servers, agent.mcp(call))
    ):
        notes.append(f"{home.shorten_home_path(servers)}: {TAKEN}.")
    if call.gateway and servers is not None and agent.mcp is not None:
        wanted_server = agent.mcp(call)
        if isinstance(wanted_server, YamlEntry) and (
            reason := find_yaml_problem_or_empty(servers, wanted_server)
        ):
            notes.append(
                f"{home.shorten_home_path(servers)} is left as it is: {reason}. So {agent.title} is not given"
                " Signalbox's MCP servers."
            )
    with suppress(FileRefused):
        if reason := find_telemetry_problem_or_empty(agent, call, home):
            notes.append(f"{reason}. So Signalbox will not see {agent.title}'s tokens.")
    return notes


def agent_restart_command_or_empty(agent: ConnectableAgent, home: UserHome) -> str:
    """Return the command that restarts the agent's background server; "" where none runs."""
    if agent.background is None:
        return ""
    name, command = agent.background
    path = os.path.join(agent.settings_folder(home.home, home.environment), name)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
        except (ConnectionRefusedError, FileNotFoundError):
            return ""
        except OSError:  # the path is too long for an address, or it is busy
            return command if os.path.exists(path) else ""
    return command


def list_folder_and_its_parents(folder: str) -> list[str]:
    """Return the folder and its parents; agents look for a project's settings in some of them."""
    folders = [folder] if folder else []
    while folders and os.path.dirname(folders[-1]) != folders[-1]:
        folders.append(os.path.dirname(folders[-1]))
    return folders


def is_mcp_server_name_taken(path: str, entry: SettingsEntries | TomlTable | YamlEntry) -> bool:
    """Say whether somebody else's server has our name there."""
    with suppress(FileRefused, UnreadableSettings):
        text = files.read_file_snapshot(path).decoded_text
        if isinstance(entry, TomlTable | YamlEntry):
            return is_entry_name_taken(text, entry)
        return bool(text.strip()) and merging.has_conflicting_values(text, entry)
    return False


def find_yaml_problem_or_empty(path: str, entry: YamlEntry) -> str:
    """Return why our entry cannot go into the settings, in words; "" where it can, or somebody else's is there."""
    with suppress(FileRefused):
        try:
            yaml_entries.add_yaml_entry(files.read_file_snapshot(path).decoded_text, entry)
        except UnreadableSettings as problem:
            return str(problem)
    return ""


def load_agent_settings_or_none(path: str) -> Any:
    with suppress(FileRefused, UnreadableSettings, tomllib.TOMLDecodeError):
        text = files.read_file_snapshot(path).decoded_text
        if text.strip():
            return tomllib.loads(text) if path.endswith(".toml") else jsonc.load_jsonc_value(text)
    return None


def plan_disconnect_change(
    path: str, edited_file: EditedFile, entries: Sequence[Entry]
) -> tuple[FileChange, bool]:
    """Return what would change for a file to be without us, and whether it then is exactly what it was before.

    `entries` are the entries that we put in; none for a file of our own. Raises FileRefused.
    """
    file_snapshot = files.read_file_snapshot(path)
    if (
        file_snapshot.content is None
        or edited_file.is_content_as_written(file_snapshot.content)
        or file_snapshot.content == edited_file.original
    ):
        after, exact = (
            (edited_file.original, True)
            if file_snapshot.content is not None
            else (None, edited_file.original is None)
        )
    elif not entries:
        after, exact = None, False
    else:
        try:
            text = file_snapshot.decoded_text
            for wanted_entry in entries:
                text = remove_signalbox_entry(text, wanted_entry, edited_file)
        except UnreadableSettings as problem:
            raise FileRefused(
                f"{path} cannot be read: {problem}. Remove Signalbox's hooks by hand."
            ) from None
        empty = edited_file.original is None and is_empty_settings_text(text)
        after, exact = (None if empty else text.encode()), False
    change = FileChange(
        edited_file.agent, file_snapshot, after, mode=edited_file.mode if after is not None else None
    )
    if change.has_effect:
        files.require_replaceable_file(file_snapshot)
    return change, exact


def remove_signalbox_entry(text: str, entry: Entry, edited_file: EditedFile) -> str:
    if isinstance(entry, TomlTable | YamlEntry):
        return remove_entry_from_settings_text(text, entry)
    if isinstance(entry, TomlValue):
        return (
            text
            if had_value_before_connecting(edited_file, entry)
            else toml_tables.remove_toml_value(text, entry)
        )
    if isinstance(entry, FormerLines):
        return lines.remove_former_variable_lines(text, entry)
    return merging.remove_settings_entries(
        text, entry, decode_original_content_leniently(edited_file.original)
    )


def is_empty_settings_text(text: str) -> bool:
    return text.strip("\ufeff \t\r\n") in {"", "{}"}


def decode_original_content_leniently(content: bytes | None) -> str:
    return (content or b"").decode("utf-8", "replace")


def apply_file_changes(
    changes: Iterable[FileChange], edited_files: dict[str, EditedFile], *, connects: bool
) -> None:
    """Write all changes or none, and the record with them. Raises FileRefused and OSError."""
    done: list[tuple[FileChange, list[str]]] = []
    before = dict(edited_files)
    try:
        for change in changes:
            # The record comes first: a file that is changed and not in it could never be put back.
            if connects and change.after is not None:
                edited_files[change.snapshot.path] = build_edited_file_record(
                    change, change.after, edited_files.get(change.snapshot.path)
                )
                record.save_edited_files_record(edited_files)
            written_state = (
                files.write_or_delete_unchanged_file(
                    change.snapshot, change.after, change.resulting_file_mode
                )
                if change.has_effect
                else []
            )
            done.append((change, written_state))
            if connects and written_state:
                edited_files[change.snapshot.path] = replace(
                    edited_files[change.snapshot.path], folders=written_state
                )
                record.save_edited_files_record(edited_files)
    except (OSError, FileRefused):
        undo_file_changes(done)
        record.save_edited_files_record(before)
        raise
    if not connects:
        restored = [(change, edited_files.pop(change.snapshot.path)) for change, _ in done]
        record.save_edited_files_record(edited_files)
        files.remove_empty_folders(
            [folder for change, was in restored if change.after is None for folder in was.folders]
        )


def build_edited_file_record(
    change: FileChange, after: bytes, existing_file: EditedFile | None
) -> EditedFile:
    mode = existing_file.mode if existing_file else change.snapshot.mode if change.secret else None
    return EditedFile(
        change.agent,
        change.base,
        record.hash_file_content(after),
        existing_file.folders if existing_file else [],
        mode,
    )


def undo_file_changes(done: list[tuple[FileChange, list[str]]]) -> None:
    for change, written_state in reversed(done):
        if change.has_effect:
            with suppress(OSError, FileRefused):
                now = files.read_file_snapshot(change.snapshot.path)
                files.write_or_delete_unchanged_file(
                    FileSnapshot(now.path, now.target, now.content, change.snapshot.mode),
                    change.snapshot.content,
                )
                files.remove_empty_folders(written_state)
