"""How each word for a state looks: a tone, a shape and a label, so that colour never says it alone.

One vocabulary for sessions, runs, runners, agents, permission requests, grants, keys and audit results. A word
that is not here (a row written by another program) is shown as it stands, with the shape of "unknown".
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StatusLook:
    """`tone` is a class of components.css (good, warn, bad, calm, busy); `icon` a symbol of icons.svg."""

    tone: str
    icon: str
    label: str


STATES: dict[str, StatusLook] = {
    # sessions and runs
    "pending": StatusLook("warn", "st-clock", "Pending"),
    "claimed": StatusLook("busy", "st-half", "Claimed"),
    "running": StatusLook("busy", "st-running", "Running"),
    "idle": StatusLook("calm", "st-ring", "Idle"),
    "stopping": StatusLook("warn", "st-half", "Stopping"),
    "stopped": StatusLook("calm", "st-stop", "Stopped"),
    "finished": StatusLook("good", "st-check", "Finished"),
    "completed": StatusLook("good", "st-check", "Completed"),
    "error": StatusLook("bad", "st-cross", "Error"),
    "failed": StatusLook("bad", "st-cross", "Failed"),
    # permission requests
    "approved": StatusLook("good", "st-check", "Approved"),
    "denied": StatusLook("bad", "st-ban", "Denied"),
    "expired": StatusLook("calm", "st-hourglass", "Expired"),
    "withdrawn": StatusLook("calm", "st-back", "Withdrawn"),
    # agents, runners, servers, keys
    "online": StatusLook("good", "st-dot", "Online"),
    "degraded": StatusLook("warn", "st-warning", "Degraded"),
    "stale": StatusLook("warn", "st-warning", "Stale"),
    "offline": StatusLook("calm", "st-ring", "Offline"),
    "active": StatusLook("good", "st-dot", "Active"),
    "inactive": StatusLook("calm", "st-ring", "Inactive"),
    "revoked": StatusLook("bad", "st-ban", "Revoked"),
    # notifications
    "waiting": StatusLook("warn", "st-clock", "Waiting"),
    "sent": StatusLook("good", "st-check", "Sent"),
    "dropped": StatusLook("calm", "st-back", "Dropped"),
    "auto-approved": StatusLook("warn", "st-check", "Auto-approved"),
    # access and audit
    "allow": StatusLook("good", "st-check", "Allow"),
    "allowed": StatusLook("good", "st-check", "Allowed"),
    "ask": StatusLook("warn", "st-half", "Ask"),
    "asked": StatusLook("warn", "st-half", "Asked"),
    "deny": StatusLook("bad", "st-ban", "Deny"),
    "success": StatusLook("good", "st-check", "Success"),
    "sealed": StatusLook("good", "st-check", "Sealed"),
    "altered": StatusLook("bad", "st-cross", "Altered"),
    "unproved": StatusLook("bad", "st-warning", "Not proved"),
    "missing": StatusLook("bad", "st-cross", "Missing"),
    "failure": StatusLook("bad", "st-cross", "Failure"),
    "inherit": StatusLook("calm", "st-dash", "Inherit"),
    "opt-in": StatusLook("calm", "st-ban", "Opt-in"),
    "opt-out": StatusLook("good", "st-check", "Opt-out"),
}


def state_of(word: object) -> StatusLook:
    """Return how `word` looks; a word nobody knows keeps its own text."""
    text = "" if word is None else str(word)
    known = STATES.get(text.lower())
    return known or StatusLook("calm", "st-unknown", text or "Unknown")
