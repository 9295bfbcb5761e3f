"""The parts of a tool call that rules see: one text that names it, and the other fields of its input.

Deny and ask rules look at every field that says what a call reaches (`path` and `glob` of a search, the targets of a
patch), and at paths as they are once `..` and doubled slashes are resolved. What is merely written there (a file's
new text, a description) is seen by no rule: a patch that mentions `.env` touches none.

An allow rule covers the text it was written for and the fields in COVERED, which change nothing about what a call may
do. Any other field that is set (`dangerouslyDisableSandbox`, the `path` of a search, one that nobody knows) must be
named by the pattern, and the pattern then has to fit the whole input as JSON. So it has where no field names the call.
"""

from __future__ import annotations

import itertools
import json
import ntpath
import posixpath
import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from coordinator.calls.descriptions import CallDescription, describe_call, resolve_call_symlinks_if_changed
from coordinator.calls.paths import PathLinks, parse_reported_symlinks_or_none, resolve_absolute_path
from coordinator.calls.tools import (
    COMMAND_FIELDS,
    CONTENT_FIELDS,
    FILE_PART_FIELDS,
    FOLDER_FIELDS,
    GUARD_LIFTING_FIELDS,
    MATCH_FIELDS,
    NOTE_FIELDS,
    PAGE_FIELDS,
    TOOLS,
)
from coordinator.policy.rules.call_history import CallHistory

# Those by which a call is named; `calls.tools` lists every field that may hold a path or an address.
PATH_FIELDS = frozenset(
    {"file_path", "notebook_path", "path", "filePath", "filepath", "absolute_path", "dir_path", "source"}
)
ADDRESS_FIELDS = frozenset({"url", "uri"})
MAX_CLIMBING_PATHS = 5_000  # beyond MAX_FIELD_TEXTS, for each takes a moment to resolve
MAX_FIELD_TEXTS = 500  # beyond this a call's texts are looked at together, one a line


# Where a command runs. Rules have never named it; a deny rule sees it.
_FOLDERS = FOLDER_FIELDS | {"dir_path"}
UNSEEN = NOTE_FIELDS | CONTENT_FIELDS | PAGE_FIELDS  # by deny and ask rules
# What lifts a guard of the agent itself: no allow rule covers it, not even one without a pattern.
LIFTS_GUARDS = GUARD_LIFTING_FIELDS
# Codex takes headers that are indented, OpenCode those without a blank behind the colon.
_PATCH_TARGET = re.compile(
    r"^\s*\*\*\* (?:Add File|Update File|Delete File|Move to):[^\S\n]*(\S.*?)\s*$", re.MULTILINE
)
_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://[^/\\?#]*)([^?#]*)(.*)", re.DOTALL)
_SEPARATORS = re.compile(r"[/\\]")
_CONTROLS = {json.dumps(letter)[1:-1]: letter for letter in map(chr, range(32))}  # as JSON writes them
_NOTHING: tuple[Any, ...] = (None, False, "", [], {})  # a field that says as much as one that is not there


class JoinedTexts(str):
    """Many texts, one a line; a pattern's `^` and `$` are the beginning and the end of each."""


class UnsearchableText(str):
    """Texts that nobody looks at, so many are they: each deny and ask rule's pattern fits."""


class CallText(str):
    """The text that names a call (its command, path or address), with the rest of its input as rules see it.

    As a string it is that text alone, which cards show and history keeps.
    """

    def __new__(
        cls,
        text: str,
        field: str = "",
        tool_input: Any = None,
        folder: str | None = None,
        links: PathLinks | None = None,
    ) -> CallText:
        instance = super().__new__(cls, text)
        instance.links = links
        instance.field = field
        instance.tool_input = tool_input
        instance.folder = folder
        instance._descriptions = {}
        instance.history = None
        return instance

    field: str  # of the input, that holds the text; "" where the text is the whole input
    tool_input: Any
    folder: str | None  # the working directory of the agent, where it is known
    links: PathLinks | None  # on the way to its paths, where the agent's machine reported some
    _descriptions: dict[str, CallDescription]  # by tool
    history: CallHistory | None  # what was recorded before the call, where a rule asks about it

    def copy_with_folder(self, folder: str | None) -> CallText:
        """Return the same of a call in this working directory."""
        return type(self)(str(self), self.field, self.tool_input, folder, self.links)

    def copy_with_symlinks(self, links: PathLinks | None) -> CallText:
        """Return the same of a call with these links on the way to its paths."""
        return type(self)(str(self), self.field, self.tool_input, self.folder, links)

    def copy_with_call_history(self, history: CallHistory) -> CallText:
        """Return the same of a call before which this was recorded."""
        copied = type(self)(str(self), self.field, self.tool_input, self.folder, self.links)
        copied.history, copied._descriptions = history, self._descriptions
        return copied

    def describe_call(self, tool: str) -> CallDescription:
        """Return what the call does, as one of this tool. It is found out once."""
        if tool not in self._descriptions:
            self._descriptions[tool] = describe_call(tool, self.tool_input, self.folder)
        return self._descriptions[tool]

    def real_path_description_or_none(self, tool: str) -> CallDescription | None:
        """Return what the call does with the real paths behind its own; None where these are the same."""
        return (
            resolve_call_symlinks_if_changed(self.describe_call(tool), self.links)
            if self.links is not None
            else None
        )

    @property
    def symlink_target_paths(self) -> tuple[str, ...]:
        """The real path of the field that names the call; none where it is the same, or no path."""
        if self.links is None or self.field not in PATH_FIELDS:
            return ()
        path = resolve_absolute_path(self.folder, str(self), self.startswith("~"))
        real = self.links.real_path(path) if path is not None else None
        return () if real is None or real == path else (replace_surrogates(real),)

    @cached_property
    def texts_checked_by_deny_rules(self) -> tuple[str, ...]:
        """Every text at which deny and ask rules look, the call's own first."""
        is_path = self.field in PATH_FIELDS | ADDRESS_FIELDS
        texts = (
            [str(self), *list_normalized_form_if_changed(self), *self.symlink_target_paths]
            if is_path
            else [str(self)]
        )
        if not isinstance(self.tool_input, Mapping):
            return tuple(texts)
        unseen = UNSEEN if self.field else ()  # where no field names the call, each may be what it does
        rest = {k: v for k, v in self.tool_input.items() if k != self.field and k not in unseen}
        strings = list(itertools.islice(iterate_nested_strings(rest), MAX_FIELD_TEXTS + 1))
        for text in strings[:MAX_FIELD_TEXTS]:
            texts += [text, *list_normalized_form_if_changed(text)]
        distinct_texts = tuple(dict.fromkeys(map(replace_surrogates, texts)))
        return (
            distinct_texts
            if len(strings) <= MAX_FIELD_TEXTS
            else (
                *distinct_texts,
                *build_search_texts_from_large_json(replace_surrogates(dump_tool_input_for_rules(rest))),
            )
        )

    def copy_without_surrogates(self) -> CallText:
        """Return the same with a text that every engine of patterns takes."""
        if self.isascii():
            return self
        return type(self)(replace_surrogates(self), self.field, self.tool_input, self.folder, self.links)

    @cached_property
    def fields_requiring_allow_pattern(self) -> frozenset[str]:
        """The fields that are set and that no allow rule covers unless its pattern names them."""
        if not isinstance(self.tool_input, Mapping):
            return frozenset()
        field_names = {
            str(name) for name, value in self.tool_input.items() if not is_empty_field_value(value)
        }
        if not self.field:  # the pattern has to fit the whole input
            return frozenset(field_names & LIFTS_GUARDS)
        return frozenset(field_names - {self.field} - input_fields_needing_no_pattern(self.field))

    @property
    def text_an_allow_pattern_must_match(self) -> str:
        """The text that an allow pattern has to fit: the call's own, or all that is not covered with it, as JSON."""
        if not self.fields_requiring_allow_pattern or not self.field:
            return str(self)
        return replace_surrogates(dump_tool_input_for_rules(self.input_fields_for_allow_pattern))

    @property
    def input_fields_for_allow_pattern(self) -> Any:
        if not self.field or not isinstance(self.tool_input, Mapping):
            return self.tool_input
        return {
            k: v
            for k, v in self.tool_input.items()
            if k == self.field or k in self.fields_requiring_allow_pattern
        }

    @property
    def normalized_allow_pattern_text(self) -> str | None:
        """The same with its paths resolved; None where that changes nothing."""
        if self.fields_requiring_allow_pattern or not self.field:
            if ".." not in self.text_an_allow_pattern_must_match:
                return None
            plain = normalize_paths_with_parent_steps(self.input_fields_for_allow_pattern)
            return (
                replace_surrogates(dump_tool_input_for_rules(plain))
                if plain != self.input_fields_for_allow_pattern
                else None
            )
        is_path = self.field in PATH_FIELDS | ADDRESS_FIELDS
        return next(iter(list_normalized_form_if_changed(self)), None) if is_path else None


class PatchText(CallText):
    """The files that a patch touches, one a line; its content is seen by no rule."""

    @property
    def symlink_target_paths(self) -> tuple[str, ...]:
        """The real path of each target that is behind a link."""
        if self.links is None:
            return ()
        paths = [
            resolve_absolute_path(self.folder, target, target.startswith("~")) for target in self.split("\n")
        ]
        reals = [(path, self.links.real_path(path)) for path in paths if path is not None]
        return tuple(replace_surrogates(real) for path, real in reals if real != path)

    @cached_property
    def texts_checked_by_deny_rules(self) -> tuple[str, ...]:
        """Each target by itself, as it is written and resolved, and all of them together."""
        targets = self.split("\n")
        texts = [
            str(self),
            *targets,
            *(resolved for target in targets for resolved in list_normalized_form_if_changed(target)),
            *self.symlink_target_paths,
        ]
        return tuple(dict.fromkeys(map(replace_surrogates, texts)))

    @property
    def normalized_allow_pattern_text(self) -> str | None:
        if self.fields_requiring_allow_pattern:
            return super().normalized_allow_pattern_text
        plain = "\n".join(
            next(iter(list_normalized_form_if_changed(target)), target) for target in self.split("\n")
        )
        return replace_surrogates(plain) if plain != self else None


def replace_surrogates(text: str) -> str:
    """Return a text without lone surrogates, which no engine of patterns takes."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def build_call_text_from_input(tool_input: Any, field: str | None) -> str:
    """Return what a call is about: this field of its input, else the whole input as JSON."""
    text = tool_input.get(field) if isinstance(tool_input, dict) and field else None
    if isinstance(text, str):
        return CallText(text, field or "", tool_input)
    return CallText(dump_tool_input_for_rules(tool_input), "", tool_input)


def build_call_text_from_patch(tool_input: Any, field: str) -> str:
    """Return which files a patch touches; as `build_call_text_from_input` where it names none."""
    patch = tool_input.get(field) if isinstance(tool_input, dict) else None
    headers = _PATCH_TARGET.findall(patch) if isinstance(patch, str) else []
    targets = list(
        dict.fromkeys(target for header in headers for target in list_paths_in_patch_header(header))
    )
    return (
        PatchText("\n".join(targets), field, tool_input)
        if targets
        else build_call_text_from_input(tool_input, field)
    )


def list_paths_in_patch_header(target: str) -> list[str]:
    """Return the files that a header of a patch may name: OpenCode reads one as far as its next colon."""
    before = target.partition(":")[0].rstrip()
    return (
        [target] if before == target or len(before) <= 1 else [target, before]
    )  # a drive's letter is no file's name


def build_call_text_from_description(tool: str, about: str) -> str:
    """Return the text of a call of which a person says only what it is about: its command, path or address."""
    traits = TOOLS.get(tool)
    if traits is None:
        return about
    field = "command" if traits.is_command else "url" if traits.has_address else "file_path"
    field = "pattern" if traits.searches_here and not about.startswith(("/", "~", ".")) else field
    return CallText(about, field, {field: about})


def build_requested_call_text(tool: str, tool_input: Any, target: str) -> str:
    """Return the text of a call that a program asks about by the API: the first field of its input that says it.

    `target` is what the request names where it has no input.
    """
    if tool_input is None:
        return build_call_text_from_description(tool, target)
    names = tool_input if isinstance(tool_input, Mapping) else ()
    fields = [name for name in names if name in COMMAND_FIELDS | PATH_FIELDS | ADDRESS_FIELDS]
    return build_call_text_from_input(
        tool_input, next((name for name in fields if name in COMMAND_FIELDS), next(iter(fields), None))
    )


def copy_call_text_with_folder(text: str, folder: str | None) -> str:
    """Return the text of a call that is made in this working directory."""
    return text.copy_with_folder(folder) if isinstance(text, CallText) and folder else text


def call_text_with_symlinks(text: str, reported: Any) -> str:
    """Return the text of a call with the links that `signalbox hook` found on the way to its paths, if it did."""
    links = parse_reported_symlinks_or_none(reported)
    return text.copy_with_symlinks(links) if isinstance(text, CallText) and links is not None else text


def dump_tool_input_for_rules(value: Any) -> str:
    """Return an input as rules see one that has no field of its own to name the call."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def texts_for_deny_rules(text: str) -> tuple[str, ...]:
    """Return every text of a call at which deny and ask rules look."""
    return text.texts_checked_by_deny_rules if isinstance(text, CallText) else (text,)


def text_for_allow_rules(text: str) -> str:
    """Return the text of a call that an allow pattern has to fit."""
    return text.text_an_allow_pattern_must_match if isinstance(text, CallText) else text


def has_guard_lifting_field(text: str) -> bool:
    """Say whether a field of the call lifts one of its agent's own guards."""
    return isinstance(text, CallText) and bool(text.fields_requiring_allow_pattern & LIFTS_GUARDS)


def does_allow_pattern_name_all_fields(text: str, pattern: str) -> bool:
    """Say whether an allow rule with this pattern names every field of the call that it has to name."""
    if not isinstance(text, CallText):
        return True
    return all(re.escape(name) in pattern or name in pattern for name in text.fields_requiring_allow_pattern)


def changed_allow_text_or_none(text: str) -> str | None:
    """Return the text of a call that an allow pattern has to fit as well: without `..`; None where it has none."""
    return text.normalized_allow_pattern_text if isinstance(text, CallText) else None


def input_fields_needing_no_pattern(field: str) -> frozenset[str]:
    if field in COMMAND_FIELDS:
        return NOTE_FIELDS | _FOLDERS
    if field in PATH_FIELDS:
        return NOTE_FIELDS | CONTENT_FIELDS | FILE_PART_FIELDS
    if field in ADDRESS_FIELDS:
        return NOTE_FIELDS | PAGE_FIELDS
    return NOTE_FIELDS | MATCH_FIELDS


def is_empty_field_value(value: Any) -> bool:
    return any(
        value is nothing or (type(value) is type(nothing) and value == nothing) for nothing in _NOTHING
    )


def iterate_nested_strings(value: Any) -> Iterator[str]:
    """Yield every string below a value, and the names that lead to them."""
    pending = [value]
    while pending:
        part = pending.pop()
        if isinstance(part, str):
            yield part
        elif isinstance(part, Mapping):
            pending += [*part.values(), *(name for name in part if isinstance(name, str) and "/" in name)]
        elif isinstance(part, list | tuple):
            pending += part
        elif part is not None and not isinstance(part, bool):
            yield str(part)


def build_search_texts_from_large_json(packed: str) -> tuple[str, ...]:
    """Return all texts of an input, `packed` as JSON, as rules look at very many: without taking them one by one."""
    lines = join_json_strings_by_newline(packed)
    climbing = [
        line for line in lines.split("\n") if "/." in line or "./" in line or "//" in line or "\\.." in line
    ]
    if len(climbing) > MAX_CLIMBING_PATHS:
        return (UnsearchableText(packed),)
    resolved = [plain for line in climbing for plain in list_normalized_form_if_changed(line)]
    return packed, JoinedTexts(lines), JoinedTexts("\n".join(resolved))


def join_json_strings_by_newline(packed: str) -> str:
    """Return JSON with each of its strings on a line of its own, as it is without escapes."""
    # Neither of the two placeholders can occur: JSON writes every control character as an escape.
    lines = packed.replace("\\\\", "\0").replace('\\"', "\1").replace('"', "\n").replace("\1", '"')
    for written, letter in _CONTROLS.items():
        lines = lines.replace(written, letter)
    return lines.replace("\0", "\\")


def normalize_paths_with_parent_steps(value: Any) -> Any:
    """Return a value with those of its texts resolved that are paths and climb (`..`)."""
    if isinstance(value, str):
        climbs = ".." in _SEPARATORS.split(value) or _ADDRESS.match(value)
        return next(iter(list_normalized_form_if_changed(value)), value) if climbs else value
    if isinstance(value, dict):
        return {name: normalize_paths_with_parent_steps(part) for name, part in value.items()}
    return [normalize_paths_with_parent_steps(part) for part in value] if isinstance(value, list) else value


def list_normalized_form_if_changed(path: str) -> list[str]:
    """Return the path or address that a text means, where that is another text: without `.`, `..`, doubled slashes."""
    if (address := _ADDRESS.match(path)) is not None:
        return list_changed_normalized_url(*address.groups())
    if "\\" in path and ".." in _SEPARATORS.split(path):
        return [ntpath.normpath(path)]
    if "/" not in path:
        return []
    plain = posixpath.normpath(path)
    plain = f"/{plain.lstrip('/')}" if plain.startswith("//") else plain
    return [plain] if plain != path.rstrip("/") else []


def list_changed_normalized_url(host: str, path: str, query: str) -> list[str]:
    """Return the address whose path does not climb, as a program that fetches it reads it."""
    plain = re.sub("%2e", ".", path, flags=re.IGNORECASE).replace("\\", "/")
    if not {".", ".."} & set(plain.split("/")):
        return []
    return [f"{host}/{posixpath.normpath(plain).lstrip('/')}{query}"]
