"""The headline of a call: a verb, the one thing that it is about, and where."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any
from urllib.parse import urlsplit

from coordinator.calls.descriptions import CallDescription, describe_call, find_call_working_folder
from coordinator.calls.programs import DELETE, LIST, READ, WRITE
from coordinator.calls.tools import COMMAND_FIELDS, TOOLS, Tool

LONGEST_SUBJECT = 160  # characters of a headline's subject: two lines on a phone
LONGEST_READ_HERE = 1_000_000  # characters of an input's text of which lines are counted
MCP_PREFIX = "mcp__"
VERBS = {WRITE: "Write", DELETE: "Delete", READ: "Read", LIST: "List"}
EDITED_FIELDS = frozenset(
    {"old_string", "old_str", "oldString", "oldText", "edits", "new_source", "patch", "patchText", "input"}
)
QUERY_FIELDS = ("query", "pattern", "prompt")


@dataclass(frozen=True, slots=True)
class CallHeadline:
    """A headline.

    verb: what is done ("Run").
    subject: the text of the call that it is done to, on one line; "" where the verb says it all.
    rest: what follows ("in shop").
    whole_field: the field of the input of which the subject is the whole value; "" where it is shortened or made up.
    """

    verb: str
    subject: str = ""
    rest: str = ""
    whole_field: str = ""

    @property
    def text(self) -> str:
        """The headline as one line of plain text."""
        return " ".join(filter(None, (self.verb, self.subject, self.rest)))

    def contains_full_text(self, text: str) -> bool:
        """Whether the headline contains all of a text, as its subject or at its end."""
        return text == self.subject or self.rest == f"for {text}" or self.rest.endswith(f"({text})")


def build_call_headline_parts(tool: str, tool_input: Any, folder: str | None = None) -> CallHeadline:
    """Return the headline of a call of a tool. `folder` is the working directory of its agent.

    Never raises, whatever the input is.
    """
    fields: Mapping[str, Any] = tool_input if isinstance(tool_input, Mapping) else {}
    traits = TOOLS.get(tool)
    if traits is None:
        return build_unlisted_tool_headline(tool, fields, folder)
    if traits.is_command:
        return build_command_headline(fields, folder)
    query = next((name for name in QUERY_FIELDS if isinstance(fields.get(name), str)), "")
    if query and (traits.searches_here or not (traits.use or traits.has_address)):
        return build_search_headline(traits, fields, query)
    call = describe_call(tool, tool_input, folder)
    return build_file_headline(traits.use, fields, call) if traits.use else build_fetch_headline(call)


def build_search_headline(traits: Tool, fields: Mapping[str, Any], query: str) -> CallHeadline:
    if not traits.use:
        return build_subject_headline("Search the web for", fields, query)
    return build_subject_headline(
        "Find files named" if traits.has_path_pattern else "Search for", fields, query
    )


def build_unlisted_tool_headline(tool: str, fields: Mapping[str, Any], folder: str | None) -> CallHeadline:
    """Return the headline of a tool that is not in the table: of an MCP server's, or a new one."""
    if any(isinstance(fields.get(name), str | list) for name in COMMAND_FIELDS):
        act = build_command_headline(fields, folder)
        return CallHeadline(act.verb, act.subject, f"{act.rest} with {tool}".strip(), act.whole_field)
    if tool.startswith(MCP_PREFIX):
        server, _, name = tool.removeprefix(MCP_PREFIX).partition("__")
        return CallHeadline("Call", name or server, f"of {server}" if name else "")
    return CallHeadline("Use", tool)


def build_command_headline(fields: Mapping[str, Any], folder: str | None) -> CallHeadline:
    name = next((name for name in ("command", "cmd", "script") if fields.get(name)), "")
    value = fields.get(name)
    folder_text = describe_working_directory(find_call_working_folder(fields, folder))
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        return CallHeadline("Run", shorten_headline_subject(shlex.join(value[:LONGEST_SUBJECT])), folder_text)
    if not isinstance(value, str) or not value.strip():
        return CallHeadline("Run a command", rest=folder_text)
    lines = value[:LONGEST_READ_HERE].strip().splitlines()
    first = lines[0].strip()
    more = "" if len(lines) == 1 else f"and {len(lines) - 1} more line{'s' if len(lines) > 2 else ''}"
    rest = " ".join(filter(None, (more, folder_text)))
    subject = shorten_headline_subject(first)
    return CallHeadline("Run", subject, rest, name if subject == value else "")


def describe_working_directory(folder: str | None) -> str:
    name = PurePath(folder.replace("\\", "/")).name if folder else ""
    return f"in {shorten_headline_subject(name)}" if name else ""


def build_fetch_headline(call: CallDescription) -> CallHeadline:
    hosts = list(dict.fromkeys(address.host or address.text for address in call.addresses))
    if len(hosts) > 1:
        return CallHeadline(f"Fetch {len(hosts)} addresses")
    host = urlsplit(call.addresses[0].text).netloc if call.addresses and hosts == [""] else "".join(hosts)
    return CallHeadline("Fetch", shorten_headline_subject(host)) if host else CallHeadline("Fetch a page")


def build_file_headline(use: str, fields: Mapping[str, Any], call: CallDescription) -> CallHeadline:
    paths = list(dict.fromkeys(path.text for path in call.paths if path.use in VERBS))
    uses = {path.use for path in call.paths}
    use = DELETE if uses == {DELETE} else use
    verb = "Edit" if use == WRITE and EDITED_FIELDS & fields.keys() else VERBS[use]
    if len(paths) != 1:
        return CallHeadline(f"{verb} {len(paths)} files" if paths else f"{verb} a file")
    [path] = paths
    name = next((name for name, value in fields.items() if value == path), "")
    subject = shorten_headline_subject(path)
    return CallHeadline(verb, subject, whole_field=name if subject == path else "")


def build_subject_headline(verb: str, fields: Mapping[str, Any], name: str) -> CallHeadline:
    subject = shorten_headline_subject(fields[name])
    return CallHeadline(verb, subject, whole_field=name if subject == fields[name] else "")


def shorten_headline_subject(text: str) -> str:
    """Return a text on one line; of a longer one its beginning."""
    line = " ".join(text[: LONGEST_SUBJECT * 4].split())
    return line if len(line) <= LONGEST_SUBJECT else f"{line[: LONGEST_SUBJECT - 1]}…"
