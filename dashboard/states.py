"""How each word for a state looks: a tone, a shape and a label, so that colour never says it alone.

One vocabulary for sessions, runs, runners, agents, permission requests, grants, keys and audit results. A word
that is not here (a row written by another program) is shown as it stands, with the shape of "unknown".
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class State:
    """`tone` is a class of components.css (good, warn, bad, calm, busy); `icon` a symbol of icons.svg."""

    tone: str
    icon: str
    label: str


STATES: dict[str, State] = {
    # sessions and runs
    "pending": State("warn", "st-clock", "Pending"),
    "claimed": State("busy", "st-half", "Claimed"),
    "running": State("busy", "st-running", "Running"),
    "idle": State("calm", "st-ring", "Idle"),
    "stopping": State("warn", "st-half", "Stopping"),
    "stopped": State("calm", "st-stop", "Stopped"),
    "finished": State("good", "st-check", "Finished"),
    "completed": State("good", "st-check", "Completed"),
    "error": State("bad", "st-cross", "Error"),
    "failed": State("bad", "st-cross", "Failed"),
    # permission requests
    "approved": State("good", "st-check", "Approved"),
    "denied": State("bad", "st-ban", "Denied"),
    "expired": State("calm", "st-hourglass", "Expired"),
    "withdrawn": State("calm", "st-back", "Withdrawn"),
    # agents, runners, servers, keys
    "online": State("good", "st-dot", "Online"),
    "degraded": State("warn", "st-warning", "Degraded"),
    "stale": State("warn", "st-warning", "Stale"),
    "offline": State("calm", "st-ring", "Offline"),
    "active": State("good", "st-dot", "Active"),
    "inactive": State("calm", "st-ring", "Inactive"),
    "revoked": State("bad", "st-ban", "Revoked"),
    # notifications
    "waiting": State("warn", "st-clock", "Waiting"),
    "sent": State("good", "st-check", "Sent"),
    "dropped": State("calm", "st-back", "Dropped"),
    "auto-approved": State("warn", "st-check", "Auto-approved"),
    # access and audit
    "allow": State("good", "st-check", "Allow"),
    "allowed": State("good", "st-check", "Allowed"),
    "deny": State("bad", "st-ban", "Deny"),
    "success": State("good", "st-check", "Success"),
    "failure": State("bad", "st-cross", "Failure"),
    "inherit": State("calm", "st-dash", "Inherit"),
    "opt-in": State("calm", "st-ban", "Opt-in"),
    "opt-out": State("good", "st-check", "Opt-out"),
}


def state_of(word: object) -> State:
    """Return how `word` looks; a word nobody knows keeps its own text."""
    text = "" if word is None else str(word)
    known = STATES.get(text.lower())
    return known or State("calm", "st-unknown", text or "Unknown")
