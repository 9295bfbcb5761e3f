"""Commands in a shell."""

from __future__ import annotations

from typing import Any

from dashboard.looks.inputs import COMMANDS, Fields
from dashboard.looks.parts import Look, Part, lines_of, output_parts, rest, string, text_of, text_part


def look(name: str, given: dict[str, Any], came: Any) -> Look | None:
    """A command: itself as the title (never silently cut in the parts), output and errors apart."""
    command, fields = string(given, *COMMANDS), Fields(given)
    if not command:
        return None
    fields.leave_out("description")
    return Look(
        icon="terminal",
        name=name,
        title=string(given, "description") or command,
        mono=not string(given, "description"),
        note=_note(came),
        inputs=[*fields.command(), *fields.others()],
        outputs=_outputs(came),
    )


def _outputs(came: Any) -> list[Part]:
    if not isinstance(came, dict) or not ({"stdout", "stderr"} & came.keys()):
        return output_parts(came)
    parts = [
        text_part(came[stream], label=label)
        for stream, label in (("stdout", "Output"), ("stderr", "Error output"))
        if isinstance(came.get(stream), str) and came[stream].strip()
    ]
    extra = rest(came, "stdout", "stderr", "isImage", "noOutputExpected")
    return parts + extra or [Part("text", "", label="Output: empty")]


def _note(came: Any) -> str:
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
        text = text_of(came) or ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0][:120] if len(lines) == 1 else lines_of(text) if lines else ""


def background(name: str, given: dict[str, Any], came: Any) -> Look | None:
    """A look at, or the end of, a command in the background."""
    fields = Fields(given)
    shell_id = fields.take("bash_id", "shell_id", "task_id")
    return Look(
        "terminal",
        name,
        title=shell_id,
        mono=True,
        inputs=fields.others(),
        outputs=_outputs(came),
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
    look,
)
TOOLS |= dict.fromkeys(("bashoutput", "killshell", "killbash", "taskoutput", "taskstop"), background)
