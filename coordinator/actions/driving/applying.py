"""Application of a runner's session updates: each once, in order, in one transaction with its effects.

Updates are numbered within their session. Updates that were applied before are skipped, so a runner may resend those
for which it has no answer. After a gap nothing is applied, and the answer gives the number from which to resend.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from django.db import transaction

from coordinator.actions.driving import agent_state, calls, drafts
from coordinator.actions.driving import runner_updates as ours
from coordinator.actions.driving.runner_post import RunnerPost
from coordinator.actions.driving.session_runners import (
    driven_values_by_column,
    lock_or_assign_driven_session,
    save_changed_driven_columns,
)
from coordinator.models import Runner
from coordinator.sessions.driven_agent_updates import AgentProtocolReader, DrivenAgentUpdate


def apply_updates_return_next_number(
    session_id: str,
    runner: Runner,
    updates: Sequence[DrivenAgentUpdate],
    *,
    run_id: str | None,
    speech: AgentProtocolReader,
    now: datetime,
) -> int:
    """Take the updates that are new and return the number that the next must have.

    Raises NotFound, and Forbidden where another runner holds the session.
    """
    with transaction.atomic(savepoint=False):
        driven = lock_or_assign_driven_session(session_id, runner)
        before = driven_values_by_column(driven)
        post = RunnerPost(session_id, run_id or driven.run_id, driven, speech, now)
        for update in updates:
            if update.n == driven.last_n + 1:
                dispatch_driven_agent_update(post, update)
                driven.last_n = update.n
            elif update.n > driven.last_n:
                break
        post.write_events_return_last_id()
        save_changed_driven_columns(driven, before)
    return driven.last_n + 1


def dispatch_driven_agent_update(post: RunnerPost, update: DrivenAgentUpdate) -> None:
    post.set_current_runner_update(update)
    piece = post.speech.words(update.kind, update.fields)
    if piece is not None:
        drafts.append_piece_to_agent_draft(post, piece)
    elif update.kind in {"tool_call", "tool_call_update"}:
        drafts.finish_agent_draft(post)
        calls.apply_driven_call_update(post, update.fields, is_new=update.kind == "tool_call")
    elif update.kind in agent_state.FACTS:
        agent_state.FACTS[update.kind](post, update.fields)
    elif update.kind in ours.OURS:
        ours.OURS[update.kind](post, update.fields)
    else:
        drafts.finish_agent_draft(post)
        # Never a type of the agent's choice: `session_stop` would end the session, `post_tool` a call.
        post.queue_event_for_writing(
            "agent_message", tool_input={"sessionUpdate": update.kind[:200], **update.fields}
        )
