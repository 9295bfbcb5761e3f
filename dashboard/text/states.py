"""The appearance of each state: a tone, a shape and a label, so that colour is never the only sign.

Sessions, runs, runners, agents, permission requests, grants, keys and audit results share this table. A state
that is not in it, from a row that another program wrote, is shown unchanged with the shape of "unknown".
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StatusStyle:
    """`tone` is a class of components.css (good, warn, bad, calm, busy); `icon` a symbol of icons.svg."""

    tone: str
    icon: str
    label: str


STATES: dict[str, StatusStyle] = {
    # sessions and runs
    "pending": StatusStyle("warn", "st-clock", "Pending"),
    "claimed": StatusStyle("busy", "st-half", "Claimed"),
    "running": StatusStyle("busy", "st-running", "Running"),
    "idle": StatusStyle("calm", "st-ring", "Idle"),
    "stopping": StatusStyle("warn", "st-half", "Stopping"),
    "stopped": StatusStyle("calm", "st-stop", "Stopped"),
    "finished": StatusStyle("good", "st-check", "Finished"),
    "completed": StatusStyle("good", "st-check", "Completed"),
    "error": StatusStyle("bad", "st-cross", "Error"),
    "failed": StatusStyle("bad", "st-cross", "Failed"),
    # permission requests
    "approved": StatusStyle("good", "st-check", "Approved"),
    "denied": StatusStyle("bad", "st-ban", "Denied"),
    "expired": StatusStyle("calm", "st-hourglass", "Expired"),
    "withdrawn": StatusStyle("calm", "st-back", "Withdrawn"),
    # agents, runners, servers, keys
    "online": StatusStyle("good", "st-dot", "Online"),
    "degraded": StatusStyle("calm", "st-half", "Away"),  # no report for a while, which is no error
    "stale": StatusStyle("warn", "st-warning", "Stale"),
    "offline": StatusStyle("calm", "st-ring", "Offline"),
    "active": StatusStyle("good", "st-dot", "Active"),
    "inactive": StatusStyle("calm", "st-ring", "Inactive"),
    "deactivated": StatusStyle("calm", "st-ban", "Deactivated"),
    "revoked": StatusStyle("bad", "st-ban", "Revoked"),
    # notifications
    "waiting": StatusStyle("warn", "st-clock", "Waiting"),
    "sent": StatusStyle("good", "st-check", "Sent"),
    "dropped": StatusStyle("calm", "st-back", "Dropped"),
    "auto-approved": StatusStyle("warn", "st-check", "Auto-approved"),
    # access and audit
    "allow": StatusStyle("good", "st-check", "Allow"),
    "allowed": StatusStyle("good", "st-check", "Allowed"),
    "ask": StatusStyle("warn", "st-half", "Ask"),
    "asked": StatusStyle("warn", "st-half", "Asked"),
    "deny": StatusStyle("bad", "st-ban", "Deny"),
    "success": StatusStyle("good", "st-check", "Success"),
    "sealed": StatusStyle("good", "st-check", "Sealed"),
    "altered": StatusStyle("bad", "st-cross", "Altered"),
    "unproved": StatusStyle("bad", "st-warning", "Not proved"),
    "missing": StatusStyle("bad", "st-cross", "Missing"),
    "failure": StatusStyle("bad", "st-cross", "Failure"),
    "inherit": StatusStyle("calm", "st-dash", "Inherit"),
    "opt-in": StatusStyle("calm", "st-ban", "Denied without a grant"),
    "opt-out": StatusStyle("good", "st-check", "Allowed without a grant"),
}


def find_status_style(word: object) -> StatusStyle:
    """Return the appearance of a state. An unknown one is labelled with its own text."""
    text = "" if word is None else str(word)
    known_style = STATES.get(text.lower())
    return known_style or StatusStyle("calm", "st-unknown", text or "Unknown")
