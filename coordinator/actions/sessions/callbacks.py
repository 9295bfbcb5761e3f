"""Callbacks: reports of ended child sessions to their parent, kept until the parent is free, sent once.

Rows, so that neither a restart nor a busy, stopped or failed parent loses one. `actions.runs` decides when a child has
ended and when a parent is free; here they are stored and formatted.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from coordinator.models import Callback, Run

STOPPED_BY_HAND = "Session was manually stopped"
NO_RESULT = "(no result)"


def should_report_run_end_to_parent(run: Run) -> bool:
    """Return whether the run's end is to be reported to a parent."""
    return run.execution_mode == "async_callback" and bool(run.parent_session_id)


def save_child_callback(run: Run, *, succeeded: bool, text: str, now: datetime) -> None:
    """Save the report for the run's parent; a second report of the same run changes nothing."""
    Callback.objects.get_or_create(
        child_run_id=run.run_id,
        defaults={
            "child_session_id": run.session_id,
            "parent_session_id": run.parent_session_id or "",
            "succeeded": succeeded,
            "text": text,
            "created_at": now,
        },
    )


def consume_callbacks_as_prompt(parent_session_id: str, run_id: str) -> str | None:
    """Mark all waiting callbacks as sent with run `run_id`; return that run's prompt, or None.

    Call it under the parent session's lock.
    """
    waiting = list(
        Callback.objects.filter(parent_session_id=parent_session_id, delivered_run_id__isnull=True).order_by(
            "id"
        )
    )
    if not waiting:
        return None
    Callback.objects.filter(pk__in=[callback.pk for callback in waiting]).update(delivered_run_id=run_id)
    return build_callback_prompt(waiting)


def build_callback_prompt(callbacks: Sequence[Callback]) -> str:
    """Put one or several callbacks into the words that orchestrating agents know."""
    if len(callbacks) > 1:
        return build_combined_callback_prompt(callbacks)
    (callback,) = callbacks
    if callback.succeeded:
        return (
            f'The child agent session "{callback.child_session_id}" has completed.\n\n'
            f"## Child Result\n\n{callback.text}\n\n"
            "Please continue with the orchestration based on this result."
        )
    return (
        f'The child agent session "{callback.child_session_id}" has failed.\n\n'
        f"## Error\n\n{callback.text}\n\n"
        "Please handle this failure and continue with the orchestration."
    )


def build_combined_callback_prompt(callbacks: Sequence[Callback]) -> str:
    parts = [
        f"### Child: {callback.child_session_id} ({'completed' if callback.succeeded else 'FAILED'})\n\n{callback.text}"
        for callback in callbacks
    ]
    return (
        "Multiple child agent sessions have completed.\n\n"
        + "\n\n---\n\n".join(parts)
        + "\n\nPlease continue with the orchestration based on these results."
    )
