"""Updates that the runner itself reports: its agent, the beginning and end of a turn, terminals, errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coordinator.actions.driving import (
    agent_state,
    calls,
    changes,
    commands,
    drafts,
    hook_session_merging,
    permissions,
)
from coordinator.actions.driving.agent_state import Taker
from coordinator.actions.driving.runner_post import RunnerPost
from coordinator.actions.sessions import notes
from coordinator.models import DrivenCall, Session
from coordinator.secrets.masking import mask_secrets_in_value
from coordinator.sessions.driven_agent_updates import LONGEST_OUTPUT
from coordinator.sessions.reports import MODEL_REQUEST, TURN_END

TURN_OVER = "The turn has ended."
CANCELLED = "The turn was cancelled."


def non_blank_text_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) and value.strip() else None


def store_agent_info(post: RunnerPost, fields: Mapping[str, Any]) -> None:
    """Save the agent's own report; fields that it does not name stay."""
    driven = post.driven
    agent = non_blank_text_or_none(fields.get("agent"))
    if agent is not None and agent != driven.agent:
        driven.agent = agent
        driven.save(update_fields=["agent"])  # the other updates of the same post already depend on it
    agent_session_id = non_blank_text_or_none(fields.get("agentSessionId"))
    is_new_session_id = agent_session_id is not None and agent_session_id != driven.agent_session_id
    if (
        agent_session_id is not None
        and is_new_session_id
        and hook_session_merging.try_remove_duplicate_hook_sessions(driven, agent_session_id, post.now)
    ):
        driven.agent_session_id = agent_session_id
        Session.objects.filter(pk=post.session_id).update(executor_session_id=agent_session_id)
    if "worktree" in fields:
        driven.worktree = non_blank_text_or_none(fields["worktree"])
    for name, field in (("agentInfo", "agent_info"), ("agentCapabilities", "capabilities")):
        if isinstance(fields.get(name), dict):
            setattr(driven, field, fields[name])
    modes, models = fields.get("modes"), fields.get("models")
    if isinstance(modes, dict):
        driven.mode_choices = modes.get("availableModes")
        driven.mode = non_blank_text_or_none(modes.get("currentModeId")) or driven.mode
    if isinstance(models, dict):
        driven.model_choices = models.get("availableModels")
        driven.model = non_blank_text_or_none(models.get("currentModelId")) or driven.model
    agent_state.store_agent_config_options(post, fields.get("configOptions"))
    if isinstance(fields.get("commands"), list):
        agent_state.FACTS["available_commands_update"](post, {"availableCommands": fields["commands"]})


def start_driven_turn(post: RunnerPost, fields: Mapping[str, Any]) -> None:
    drafts.finish_agent_draft(post)
    post.driven.run_id = post.run_id = non_blank_text_or_none(fields.get("runId")) or post.run_id
    blocks = post.speech.content(fields.get("prompt"))
    if blocks:
        post.queue_event_for_writing("message", role="user", content=blocks)
    if post.run_id is not None:
        notes.mark_prompt_notes_delivered(post.session_id, post.run_id, post.now)


def end_driven_turn(post: RunnerPost, fields: Mapping[str, Any]) -> None:
    """Write what is left to say of the turn: unfinished words and calls, what it took, how it ended."""
    drafts.finish_agent_draft(post)
    calls.flush_session_call_states(post)
    spent = post.speech.usage(fields)
    for model, counts in spent.by_model:
        tokens: dict[str, Any] = dict(counts)
        post.queue_event_for_writing(MODEL_REQUEST, model=model or post.driven.model, **tokens)
    cost = agent_state.parse_cost_fields_or_none(spent.cost)
    if cost is not None:
        post.driven.usage = {**(post.driven.usage or {}), "cost": cost}
    reason = non_blank_text_or_none(fields.get("stopReason")) or "ended"
    post.queue_event_for_writing(TURN_END, reason=reason)
    post.driven.run_id = None
    notes.queue_notes_as_prompts(post.session_id, post.now)
    permissions.withdraw_open_questions(
        post.session_id, CANCELLED if reason == "cancelled" else TURN_OVER, now=post.now
    )


def store_terminal_output(post: RunnerPost, fields: Mapping[str, Any]) -> None:
    """Keep the end of what a call's terminal has shown; its result says it all."""
    output = fields.get("output")
    driven_call = DrivenCall.objects.filter(
        session_id=post.session_id, call_id=str(fields.get("toolCallId")), ended=False
    ).first()
    if driven_call is None or not isinstance(output, str):
        return
    driven_call.output = output[-LONGEST_OUTPUT:]
    driven_call.told = {**driven_call.told, "shown": driven_call.output}
    ended = fields.get("exitStatus")
    if isinstance(ended, dict):
        driven_call.told["exit"] = ended.get("exitCode")
    driven_call.save()


def record_agent_failure(post: RunnerPost, fields: Mapping[str, Any]) -> None:
    drafts.finish_agent_draft(post)
    calls.flush_session_call_states(post)
    reason, tail = (
        non_blank_text_or_none(fields.get("reason")) or "The agent has failed.",
        non_blank_text_or_none(fields.get("stderrTail")),
    )
    post.queue_event_for_writing("agent_failed", error=f"{reason}\n\n{tail}" if tail else reason)
    permissions.withdraw_open_questions(post.session_id, mask_secrets_in_value(reason), now=post.now)


def record_unknown_runner_update(post: RunnerPost, fields: Mapping[str, Any]) -> None:
    drafts.finish_agent_draft(post)
    message = fields.get("message")
    stored_message = message if isinstance(message, dict) else {"message": message}
    post.queue_event_for_writing("agent_message", tool_input=stored_message)


def apply_command_done_update(post: RunnerPost, fields: Mapping[str, Any]) -> None:
    done = commands.mark_session_command_done(
        post.session_id, str(fields.get("id")), non_blank_text_or_none(fields.get("error")), post.now
    )
    if done is not None and done.error is None and "remove_worktree" in done.command:
        post.driven.worktree = None


# By the kind of the update.
OURS: dict[str, Taker] = {
    "signalbox/agent": store_agent_info,
    "signalbox/turn_started": start_driven_turn,
    "signalbox/turn_ended": end_driven_turn,
    "signalbox/terminal": store_terminal_output,
    "signalbox/agent_failed": record_agent_failure,
    "signalbox/unknown": record_unknown_runner_update,
    "signalbox/command_done": apply_command_done_update,
    "signalbox/changes": changes.save_turn_or_session_diff,
}
