"""Tool calls of a driven agent: one row each, filled in while the call is in progress."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from coordinator.actions.driving.runner_post import RunnerPost
from coordinator.models import DrivenCall, Event
from coordinator.secrets.masking import mask_secrets_in_value
from coordinator.sessions.driven_agent_updates import LONGEST_OUTPUT, ReportedToolCall


def apply_driven_call_update(post: RunnerPost, fields: Mapping[str, Any], *, is_new: bool) -> None:
    """Take an update of a call: begin its row once its input is whole, end it with its result.

    `is_new`: it begins a call, and is no later word about one.
    """
    call_id = fields.get("toolCallId")
    if not isinstance(call_id, str) or not call_id:
        post.queue_event_for_writing("tool_call", tool_input=dict(fields))
        return
    driven_call = DrivenCall.objects.filter(session_id=post.session_id, call_id=call_id).first()
    if driven_call is None and not is_new and record_late_call_result(post, call_id, fields):
        return
    if driven_call is None:
        driven_call = DrivenCall(session_id=post.session_id, call_id=call_id, told={}, began_at=post.at)
    if driven_call.ended:
        return
    driven_call.told = post.speech.merged(driven_call.told, fields)
    sync_call_events(post, driven_call)


def begin_call_awaiting_permission(post: RunnerPost, call_id: str, fields: Mapping[str, Any]) -> DrivenCall:
    """The agent asks whether the call may run: so its input is whole, and its row begins now at the latest."""
    driven_call = DrivenCall.objects.filter(session_id=post.session_id, call_id=call_id).first()
    if driven_call is None:
        driven_call = DrivenCall(session_id=post.session_id, call_id=call_id, told={}, began_at=post.at)
    if (
        driven_call.ended
    ):  # what is asked now is another call, whatever its id: nothing of the earlier is its own
        driven_call.told, driven_call.ended, driven_call.event_id, driven_call.output = {}, False, None, None
        driven_call.began_at = post.at
    # A call that waits for an answer is not over, whatever its question says of it.
    driven_call.told = {**post.speech.merged(driven_call.told, {**fields, "status": None}), "asked": True}
    sync_call_events(post, driven_call)
    return driven_call


def record_late_call_result(post: RunnerPost, call_id: str, fields: Mapping[str, Any]) -> bool:
    """Take an update of a call whose turn is over; say whether there is such a call. Its result is kept, once."""
    rows = Event.objects.filter(session_id=post.session_id, context__tool_use_id=call_id)
    begun = rows.filter(event_type="pre_tool").order_by("-id").first()
    if begun is None:
        return False
    call = post.speech.call(post.speech.merged({}, fields), post.agent_program)
    if call.over and not rows.filter(event_type="post_tool", id__gt=begun.pk).exists():
        queue_call_result_event(
            post, call_id, replace(call, tool=begun.tool_name or call.tool), begun.tool_input
        )
        post.write_events_return_last_id()
    return True


def sync_call_events(post: RunnerPost, driven_call: DrivenCall) -> None:
    """Bring the call's events up to what is known of it."""
    call = post.speech.call(driven_call.told, post.agent_program)
    terminal_text = post.speech.terminal(driven_call.told)
    if terminal_text is not None:
        driven_call.output = terminal_text[-LONGEST_OUTPUT:]
    if driven_call.event_id is None and call.ready:
        begin_driven_call(post, driven_call, call)
    else:
        update_call_input(driven_call, call)
    if call.over:
        end_driven_call(post, driven_call, call)
    driven_call.save()


def begin_driven_call(post: RunnerPost, driven_call: DrivenCall, call: ReportedToolCall) -> None:
    post.queue_event_for_writing(
        "pre_tool",
        at=driven_call.began_at,
        tool_name=mask_secrets_in_value(call.tool),
        tool_input=call.tool_input,
        tool_use_id=driven_call.call_id,
        subagent=call.parent,
        extra=call.extra or None,
    )
    driven_call.event_id = post.write_events_return_last_id()
    driven_call.told = {**driven_call.told, "begun": build_call_input_snapshot(call)}


def build_call_input_snapshot(call: ReportedToolCall) -> list[Any]:
    return [call.tool, call.tool_input]


def update_call_input(driven_call: DrivenCall, call: ReportedToolCall) -> None:
    """Update the row if the agent has reported more of the call's input since it began."""
    if driven_call.event_id is None or driven_call.told.get("begun") == build_call_input_snapshot(call):
        return
    Event.objects.filter(pk=driven_call.event_id).update(
        tool_name=mask_secrets_in_value(call.tool), tool_input=mask_secrets_in_value(call.tool_input)
    )
    driven_call.told = {**driven_call.told, "begun": build_call_input_snapshot(call)}


def end_driven_call(post: RunnerPost, driven_call: DrivenCall, call: ReportedToolCall) -> None:
    queue_call_result_event(post, driven_call.call_id, call, call.tool_input)
    driven_call.ended, driven_call.output = True, None
    driven_call.told = {}


def queue_call_result_event(post: RunnerPost, call_id: str, call: ReportedToolCall, tool_input: Any) -> None:
    post.queue_event_for_writing(
        "post_tool",
        tool_name=mask_secrets_in_value(call.tool),
        tool_input=tool_input,
        tool_output=call.output,
        error=call.error,
        tool_use_id=call_id,
        subagent=call.parent,
    )


def flush_session_call_states(post: RunnerPost) -> None:
    """The turn is over: what is still open has no result. Its rows say so by the turn's end."""
    for driven_call in DrivenCall.objects.filter(
        session_id=post.session_id, ended=False, event_id__isnull=True
    ):
        call = post.speech.call(driven_call.told, post.agent_program)
        begin_driven_call(post, driven_call, call)
    DrivenCall.objects.filter(session_id=post.session_id).delete()
