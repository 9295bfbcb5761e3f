"""Displays of shell commands."""

from __future__ import annotations

from typing import Any

from dashboard.looks.inputs import COMMANDS, InputFields
from dashboard.looks.parts import (
    CallDisplay,
    DisplayPart,
    build_other_input_parts,
    build_output_parts,
    build_program_output_part,
    extract_output_text_or_none,
    first_string_field_or_empty,
    format_line_count,
)
from dashboard.text.terminal import has_terminal_codes, list_terminal_spans, render_text_to_terminal_screen

MAX_SUMMARIZED_CHARACTERS = 20_000  # of an output with terminal codes


def build_shell_call_display(name: str, tool_input: dict[str, Any], output: Any) -> CallDisplay | None:
    """Return the display of a command; None without one.

    Standard output and standard error are separate parts.
    """
    command, fields = first_string_field_or_empty(tool_input, *COMMANDS), InputFields(tool_input)
    if not command:
        return None
    fields.remove_fields("description")
    return CallDisplay(
        icon="terminal",
        name=name,
        title=first_string_field_or_empty(tool_input, "description") or command,
        mono=not first_string_field_or_empty(tool_input, "description"),
        note=summarize_shell_output(output),
        inputs=[*fields.pop_command_as_parts(), *fields.build_remaining_parts()],
        outputs=build_shell_outputs(output),
    )


def build_shell_outputs(output: Any) -> list[DisplayPart]:
    if not isinstance(output, dict) or not ({"stdout", "stderr"} & output.keys()):
        return build_output_parts(output)
    parts = [
        build_program_output_part(output[stream], label=label)
        for stream, label in (("stdout", "Output"), ("stderr", "Error output"))
        if isinstance(output.get(stream), str) and output[stream].strip()
    ]
    extra = build_other_input_parts(output, "stdout", "stderr", "isImage", "noOutputExpected")
    return parts + extra or [DisplayPart("text", "", label="Output: empty")]


def summarize_shell_output(output: Any) -> str:
    if isinstance(output, dict):
        if output.get("interrupted"):
            return "interrupted"
        code = next(
            (
                output[key]
                for key in ("exit_code", "exitCode", "returncode")
                if isinstance(output.get(key), int)
            ),
            0,
        )
        if code:
            return f"exit {code}"
        streams = [output.get("stdout"), output.get("stderr")]
        text = "\n".join(text for text in streams if isinstance(text, str) and text.strip())
    else:
        text = extract_output_text_or_none(output) or ""
    if has_terminal_codes(text):
        spans = list_terminal_spans(render_text_to_terminal_screen(text[-MAX_SUMMARIZED_CHARACTERS:]).lines)
        text = "".join(span.text for span in spans)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0][:120] if len(lines) == 1 else format_line_count(text) if lines else ""


def build_background_shell_call_display(
    name: str, tool_input: dict[str, Any], output: Any
) -> CallDisplay | None:
    """Return the display of a call that reads or stops a background command."""
    fields = InputFields(tool_input)
    shell_id = fields.pop_first_text_field("bash_id", "shell_id", "task_id")
    return CallDisplay(
        "terminal",
        name,
        title=shell_id,
        mono=True,
        inputs=fields.build_remaining_parts(),
        outputs=build_shell_outputs(output),
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
    build_shell_call_display,
)
TOOLS |= dict.fromkeys(
    ("bashoutput", "killshell", "killbash", "taskoutput", "taskstop"), build_background_shell_call_display
)
