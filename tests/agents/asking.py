"""What people do about real agents' calls: lay down a rule, see a call wait, decide. Without Django, over the wire."""

from __future__ import annotations

import html
import json
import re
import time
from typing import Any

import httpx

from tests.served import Served

ASKED_WITHIN = 150.0  # seconds; on a busy machine OpenCode takes one minute to begin


def hold(served: Served, pattern: str = "touch", **more: Any) -> None:
    """Lay down that commands with the pattern are asked about, held for certain unless `more` says otherwise.

    It is the only rule then; `more` is `wait_seconds` and `deny_at_deadline`.
    """
    columns = {"verdict": "ask", "pattern": pattern, "reason": "", "deny_at_deadline": True} | more
    served.sql("DELETE FROM tool_rules")
    served.sql(
        f"INSERT INTO tool_rules (position, tool, changed_at, changed_by, {', '.join(columns)})"
        " VALUES (1, 'Bash|bash|run_shell_command', '2026-02-20T00:00:00.000000+00:00', 'user:admin',"
        f" {', '.join('?' for _ in columns)})",
        tuple(columns.values()),
    )
    time.sleep(0.4)  # the feed's pace: the workers' memory of the rules is not to be asked


def waiting(served: Served, agent: str, command: str) -> str | None:
    """Return the request that waits for an agent's call of a command, None where none does."""
    rows = served.sql(
        "SELECT r.request_id, c.tool_input FROM permission_requests r"
        " JOIN permission_context c ON c.request_id = r.request_id"
        " JOIN sessions s ON s.session_id = c.session_id"
        " WHERE r.status = 'pending' AND s.executor_profile = ?",
        (agent,),
    )
    return next(
        (str(one) for one, given in rows if json.loads(given or "{}").get("command") == command), None
    )


def asked(served: Served, agent: str, command: str, within: float = ASKED_WITHIN) -> str | None:
    """Return the request as soon as the call waits; None where it does not within so many seconds."""
    deadline = time.monotonic() + within
    while (found := waiting(served, agent, command)) is None and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def decide(browser: httpx.Client, request_id: str, verdict: str, **more: Any) -> None:
    """Decide as the person does who looked at the request's page."""
    page = browser.get(f"/ui/approvals/{request_id}/").text
    judged = re.findall(r'<input\b[^>]*\bname="judged"[^>]*\bvalue="([^"]*)"', page)
    form = {"ids": request_id, "judged": [html.unescape(one) for one in judged], "verdict": verdict, **more}
    answer = browser.post("/ui/approvals/decide/", data=form)
    assert answer.status_code == 200, answer.text
