"""Commands in a shell."""

from __future__ import annotations

from typing import Any

from dashboard.looks.inputs import COMMANDS, InputFields
from dashboard.looks.parts import (
    CallDisplay,
    DisplayPart,
    build_other_input_parts,
    build_output_parts,
    build_program_output_part,
    extract_output_text,
    first_string_value,
    format_line_count,
)
from dashboard.text.terminal import draw_terminal_text, list_terminal_spans, shows_terminal_codes

MAX_SUMMARIZED_CHARACTERS = 20_000  # of an output with codes for a terminal


def display_shell_command(name: str, given: dict[str, Any], came: Any) -> CallDisplay | None:
    """A command: itself as the title (never silently cut in the parts), output and errors apart."""
    command, fields = first_string_value(given, *COMMANDS), InputFields(given)
    if not command:
        return None
    fields.remove_fields("description")
    return CallDisplay(
        icon="terminal",
        name=name,
        title=first_string_value(given, "description") or command,
        mono=not first_string_value(given, "description"),
        note=summarize_shell_output(came),
        inputs=[*fields.take_command_parts(), *fields.build_remaining_parts()],
        outputs=build_shell_outputs(came),
    )


def build_shell_outputs(came: Any) -> list[DisplayPart]:
    if not isinstance(came, dict) or not ({"stdout", "stderr"} & came.keys()):
        return build_output_parts(came)
    parts = [
        build_program_output_part(came[stream], label=label)
        for stream, label in (("stdout", "Output"), ("stderr", "Error output"))
        if isinstance(came.get(stream), str) and came[stream].strip()
    ]
    extra = build_other_input_parts(came, "stdout", "stderr", "isImage", "noOutputExpected")
    return parts + extra or [DisplayPart("text", "", label="Output: empty")]


def summarize_shell_output(came: Any) -> str:
    if isinstance(came, dict):
        if came.get("interrupted"):
            return "interrupted"
        code = next(
            (came[key] for key in ("exit_code", "exitCode", "returncode") if isinstance(came.get(key), int)),
            0,
        )
        if code:
            return f"exit {code}"
        streams = [came.get("stdout"), came.get("stderr")]
        text = "\n".join(text for text in streams if isinstance(text, str) and text.strip())
    else:
        text = extract_output_text(came) or ""
    if shows_terminal_codes(text):
        spans = list_terminal_spans(draw_terminal_text(text[-MAX_SUMMARIZED_CHARACTERS:]).lines)
        text = "".join(span.text for span in spans)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0][:120] if len(lines) == 1 else format_line_count(text) if lines else ""


def display_background_command(name: str, given: dict[str, Any], came: Any) -> CallDisplay | None:
    """A look at, or the end of, a command in the background."""
    fields = InputFields(given)
    shell_id = fields.take_text("bash_id", "shell_id", "task_id")
    return CallDisplay(
        "terminal",
        name,
        title=shell_id,
        mono=True,
        inputs=fields.build_remaining_parts(),
        outputs=build_shell_outputs(came),
    )


TOOLS = dict.fromkeys(
    (
        "bash",
        "shell",
        "sh",
        "exec",
        "execcommand",
        "runcommand",
        "runterminalcmd",
        "runshellcommand",
        "terminal",
        "powershell",
        "localshell",
    ),
    display_shell_command,
)
TOOLS |= dict.fromkeys(
    ("bashoutput", "killshell", "killbash", "taskoutput", "taskstop"), display_background_command
)
