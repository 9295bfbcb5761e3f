"""`signalbox status-line`: Claude Code's status line, which also reports how full the limits of its subscription are.

Claude Code runs it again and again with a JSON document on its standard input. `rate_limits` there is known after the
first answer of a subscription. It is posted when it has changed, once a minute at most, and the line shows it. A
command that is given is run with the same input, and what it prints is the line.

Nothing that goes wrong here disturbs Claude Code: without a server the line is shown all the same.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any, TypeGuard

from coordinator.client import settings
from coordinator.client.connection import (
    InvalidServerAnswer,
    ServerAddress,
    ServerNotAnswering,
    SingleRequestConnection,
)
from coordinator.client.settings import NotConnected

WINDOWS = {"five_hour": (300, "5 h"), "seven_day": (10080, "week")}  # minutes, and what the line calls it
MAX_INPUT_BYTES = 1 << 20
REPORT_EVERY_SECONDS = 60
ANSWER_WAIT_SECONDS = 2.0
PATH = "/api/subscription-limits"


def run(arguments: Sequence[str]) -> int:
    """Print the line and report the limits; return the exit code, that of the given command where there is one."""
    text = sys.stdin.buffer.read(MAX_INPUT_BYTES)
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        document = {}
    limits = extract_subscription_limits(document)
    code = 0
    if command := [word for word in arguments if word != "--"]:
        code = print_personal_status_line(command, text)
    else:
        sys.stdout.write(format_status_line(document, limits))
    sys.stdout.flush()
    if limits:
        with contextlib.suppress(NotConnected, OSError, ValueError, ServerNotAnswering, InvalidServerAnswer):
            post_subscription_limits_if_due(limits)
    return code


def extract_subscription_limits(document: Any) -> list[dict[str, Any]]:
    """Return the windows of a subscription as the server takes them; none where the document has none."""
    reported = document.get("rate_limits") if isinstance(document, dict) else None
    limits = []
    for name, (minutes, _) in WINDOWS.items():
        window = reported.get(name) if isinstance(reported, dict) else None
        used, resets_at = (
            (window.get("used_percentage"), window.get("resets_at"))
            if isinstance(window, dict)
            else (None, None)
        )
        if is_number(used) and is_number(resets_at):
            limits.append(
                {"window_minutes": minutes, "used_percent": float(used), "resets_at": int(resets_at)}
            )
    return limits


def is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def format_status_line(document: Any, limits: list[dict[str, Any]]) -> str:
    """Return the model, how full its context is, and how full the limits are."""
    fields = document if isinstance(document, dict) else {}
    model, context = fields.get("model"), fields.get("context_window")
    parts = [str(model.get("display_name") or "")] if isinstance(model, dict) else []
    if isinstance(context, dict) and is_number(context.get("used_percentage")):
        parts.append(f"context {context['used_percentage']:.0f} %")
    names = dict(WINDOWS.values())
    parts += [f"{names[limit['window_minutes']]} {limit['used_percent']:.0f} %" for limit in limits]
    line = " · ".join(part for part in parts if part)
    return "".join(character for character in line if character.isprintable())


def print_personal_status_line(command: list[str], text: bytes) -> int:
    """Run the person's own status line with the same input; return its exit code."""
    sys.stdout.flush()
    is_shell = len(command) == 1
    shell_or_words: Any = command[0] if is_shell else command
    # It is the person's own, from their own settings.
    return subprocess.run(shell_or_words, input=text, shell=is_shell, check=False).returncode  # noqa: S603


def post_subscription_limits_if_due(limits: list[dict[str, Any]]) -> None:
    """Post the limits, unless these or others were posted within the last minute. Raises what may go wrong."""
    client_settings = settings.resolve_client_settings()
    body = {"program": "claude-code", "host": socket.gethostname(), "limits": limits}
    digest = hashlib.sha256(json.dumps(limits).encode()).hexdigest()
    folder = client_settings.server_state_folder
    stamp = os.path.join(folder, "status-line")
    now = time.time()
    with contextlib.suppress(OSError, ValueError):
        with open(stamp, encoding="ascii") as file:
            posted_at, posted_digest = file.read(200).split()
        age = now - float(posted_at)
        if 0 <= age < REPORT_EVERY_SECONDS or (
            posted_digest == digest and 0 <= age < 10 * REPORT_EVERY_SECONDS
        ):
            return
    settings.make_private_folder(folder)
    with open(stamp, "w", encoding="ascii") as file:
        file.write(f"{now} {digest}")
    headers = {"Authorization": f"Bearer {client_settings.key}"} if client_settings.key else {}
    until = time.monotonic() + ANSWER_WAIT_SECONDS
    connection = SingleRequestConnection(ServerAddress(client_settings.url), until)
    connection.post(PATH, headers, json.dumps(body).encode(), patience=ANSWER_WAIT_SECONDS)
