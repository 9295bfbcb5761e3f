"""What the runner itself tells of a session: its agent, a turn's beginning and end, terminals, what went wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coordinator.actions import notes
from coordinator.actions.driving import calls, changes, commands, drafts, facts, joining, permissions
from coordinator.actions.driving.facts import Taker
from coordinator.actions.driving.runner_post import RunnerPost
from coordinator.models import DrivenCall, Session
from coordinator.secrets.masking import without_secrets
from coordinator.sessions.driving import LONGEST_OUTPUT
from coordinator.sessions.reports import MODEL_REQUEST, TURN_END

TURN_OVER = "The turn has ended."
CANCELLED = "The turn was cancelled."


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value.strip() else None


def _agent(told: RunnerPost, fields: Mapping[str, Any]) -> None:
    """Keep what the agent says of itself; what is not named stays."""
    driven = told.driven
    agent = _text(fields.get("agent"))
    if agent is not None and agent != driven.agent:
        driven.agent = agent
        driven.save(update_fields=["agent"])  # what is told in the same breath counts for it already
    given = _text(fields.get("agentSessionId"))
    is_news = given is not None and given != driven.agent_session_id
    if given is not None and is_news and joining.join_hooks_session(driven, given, told.now):
        driven.agent_session_id = given
        Session.objects.filter(pk=told.session_id).update(executor_session_id=given)
    if "worktree" in fields:
        driven.worktree = _text(fields["worktree"])
    for name, ours in (("agentInfo", "agent_info"), ("agentCapabilities", "capabilities")):
        if isinstance(fields.get(name), dict):
            setattr(driven, ours, fields[name])
    modes, models = fields.get("modes"), fields.get("models")
    if isinstance(modes, dict):
        driven.mode_choices = modes.get("availableModes")
        driven.mode = _text(modes.get("currentModeId")) or driven.mode
    if isinstance(models, dict):
        driven.model_choices = models.get("availableModels")
        driven.model = _text(models.get("currentModelId")) or driven.model
    facts.keep_options(told, fields.get("configOptions"))
    if isinstance(fields.get("commands"), list):
        facts.FACTS["available_commands_update"](told, {"availableCommands": fields["commands"]})


def _turn_started(told: RunnerPost, fields: Mapping[str, Any]) -> None:
    drafts.finish(told)
    told.driven.run_id = told.run_id = _text(fields.get("runId")) or told.run_id
    blocks = told.speech.content(fields.get("prompt"))
    if blocks:
        told.event("message", role="user", content=blocks)
    if told.run_id is not None:
        notes.turn_started(told.session_id, told.run_id, told.now)


def _turn_ended(told: RunnerPost, fields: Mapping[str, Any]) -> None:
    """Write what is left to say of the turn: unfinished words and calls, what it took, how it ended."""
    drafts.finish(told)
    calls.end_all(told)
    spent = told.speech.usage(fields)
    for model, counts in spent.by_model:
        tokens: dict[str, Any] = dict(counts)
        told.event(MODEL_REQUEST, model=model or told.driven.model, **tokens)
    cost = facts.cost_of(spent.cost)
    if cost is not None:
        told.driven.usage = {**(told.driven.usage or {}), "cost": cost}
    reason = _text(fields.get("stopReason")) or "ended"
    told.event(TURN_END, reason=reason)
    told.driven.run_id = None
    notes.turn_ended(told.session_id, told.now)
    permissions.withdraw_open(
        told.session_id, CANCELLED if reason == "cancelled" else TURN_OVER, now=told.now
    )


def _terminal(told: RunnerPost, fields: Mapping[str, Any]) -> None:
    """Keep the end of what a call's terminal has shown; its result says it all."""
    output = fields.get("output")
    known = DrivenCall.objects.filter(
        session_id=told.session_id, call_id=str(fields.get("toolCallId")), ended=False
    ).first()
    if known is None or not isinstance(output, str):
        return
    known.output = output[-LONGEST_OUTPUT:]
    known.told = {**known.told, "shown": known.output}
    ended = fields.get("exitStatus")
    if isinstance(ended, dict):
        known.told["exit"] = ended.get("exitCode")
    known.save()


def _agent_failed(told: RunnerPost, fields: Mapping[str, Any]) -> None:
    drafts.finish(told)
    calls.end_all(told)
    reason, tail = _text(fields.get("reason")) or "The agent has failed.", _text(fields.get("stderrTail"))
    told.event("agent_failed", error=f"{reason}\n\n{tail}" if tail else reason)
    permissions.withdraw_open(told.session_id, without_secrets(reason), now=told.now)


def _unknown(told: RunnerPost, fields: Mapping[str, Any]) -> None:
    drafts.finish(told)
    message = fields.get("message")
    kept = message if isinstance(message, dict) else {"message": message}
    told.event("agent_message", tool_input=kept)


def _command_done(told: RunnerPost, fields: Mapping[str, Any]) -> None:
    done = commands.done(told.session_id, str(fields.get("id")), _text(fields.get("error")), told.now)
    if done is not None and done.error is None and "remove_worktree" in done.command:
        told.driven.worktree = None


# By the kind of the update.
OURS: dict[str, Taker] = {
    "signalbox/agent": _agent,
    "signalbox/turn_started": _turn_started,
    "signalbox/turn_ended": _turn_ended,
    "signalbox/terminal": _terminal,
    "signalbox/agent_failed": _agent_failed,
    "signalbox/unknown": _unknown,
    "signalbox/command_done": _command_done,
    "signalbox/changes": changes.keep,
}
