"""The plan of an agent whose call only names the plan's file, which is stored on the agent's machine only.

Gemini CLI's `exit_plan_mode` names a file in the session's folder of plans, which is next to its transcript, or in one
of the project. So the hook carries the beginning of that file.
"""

from __future__ import annotations

import json
import os

TYPE_CHECKING = False  # `typing` takes longer to load than the rest of this module
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

FIELD = "signalbox_plan"  # of the hook's body: the plan's text
TOOL, NAME_FIELD = "exit_plan_mode", "plan_filename"
LARGEST_PLAN = 200_000  # bytes of a plan that are read
ENDINGS = (".md", ".markdown", ".txt")


def add_plan_text_to_hook(body: bytes, payload: Mapping[str, Any]) -> bytes:
    """Return a hook's body with the plan that its call names; as it is where there is none to be read."""
    end = body.rstrip()
    if payload.get("tool_name") != TOOL or FIELD in payload or not end.endswith(b"}"):
        return body
    for folder, name in iterate_plan_paths(payload):
        text = read_plan_file_beginning(folder, name)
        if text:
            return end[:-1] + b', "' + FIELD.encode() + b'": ' + json.dumps(text).encode() + b"}"
    return body


def iterate_plan_paths(payload: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the folders in which the plan may be, as Gemini CLI looks for it, each with its name there."""
    tool_input = payload.get("tool_input")
    name = tool_input.get(NAME_FIELD) if isinstance(tool_input, dict) else None
    if not isinstance(name, str) or not name.lower().endswith(ENDINGS) or "\0" in name:
        return
    folder, transcript = payload.get("cwd"), payload.get("transcript_path")
    if isinstance(folder, str) and os.path.isabs(folder):
        yield folder, name
    if isinstance(transcript, str) and os.path.isabs(transcript):
        project = os.path.dirname(os.path.dirname(transcript))
        session = payload.get("session_id")
        if isinstance(session, str) and session.replace("-", "").isalnum():
            yield os.path.join(project, session, "plans"), name
        yield os.path.join(project, "plans"), name


def read_plan_file_beginning(folder: str, name: str) -> str:
    """Return the beginning of a plan's file; nothing where it is no file within the folder that can be read."""
    try:
        folder, path = os.path.realpath(folder), os.path.realpath(os.path.join(folder, name))
        if os.path.commonpath([folder, path]) != folder or not os.path.isfile(
            path
        ):  # a pipe would be waited for
            return ""
        with open(path, "rb") as file:
            return file.read(LARGEST_PLAN).decode("utf-8", "replace")
    except (OSError, ValueError):
        return ""
