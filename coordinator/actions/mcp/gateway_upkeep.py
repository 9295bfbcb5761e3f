"""Upkeep of the gateway's tables: calls whose process died are marked as lost, and unneeded rows are deleted."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import transaction

from coordinator.actions.mcp import call_limits, gateway_calls, result_cache, result_marks
from coordinator.actions.people import session_keys
from coordinator.models import GatewayCall, GatewayFigures, GatewayLink, GatewaySession
from coordinator.models.gateway import CallState

SESSIONS_FOR = timedelta(days=7)  # since a client's last request
CALLS_FOR = timedelta(days=90)
FIGURES_FOR = timedelta(days=90)
MOST_ROWS = 500  # rows in one go


def clean_gateway_tables(now: datetime) -> None:
    """Do what is due. Safe to run at any time, by anyone."""
    mark_orphaned_calls_lost(now)
    delete_old_calls_and_results(now)
    delete_old_gateway_sessions(now)
    call_limits.delete_expired_stored_results(now)
    result_cache.delete_stale_cached_results(now)
    result_marks.delete_old_result_marks(now)
    session_keys.end_orphaned_session_keys(now)
    GatewayFigures.objects.filter(hour__lt=now - FIGURES_FOR).delete()


def mark_orphaned_calls_lost(now: datetime) -> None:
    """Mark running calls whose worker is gone, or whose time is over, as lost; all of them, page by page."""
    running = GatewayCall.objects.filter(state=CallState.RUNNING).defer("message", "result").order_by("pk")
    last = ""
    while page := list(running.filter(pk__gt=last)[:MOST_ROWS]):
        for call in page:
            gateway_calls.reload_call_marking_lost(call, binding=None, now=now)
        last = page[-1].pk


def delete_old_calls_and_results(now: datetime) -> None:
    """Drop what servers answered once nobody can ask for it any more, and in time the calls themselves."""
    with_result = GatewayCall.objects.filter(result__isnull=False)
    with_result.filter(is_task=False, ended_at__lt=now - gateway_calls.RESULT_TTL).update(result=None)
    with_result.filter(expires_at__lt=now).update(result=None)
    GatewayCall.objects.filter(expires_at__lt=now, message__isnull=False).update(message=None)
    gateway_calls.find_early_cancellations().filter(expires_at__lt=now).delete()
    over = GatewayCall.objects.filter(created_at__lt=now - CALLS_FOR, expires_at__lt=now)
    over.exclude(state=CallState.RUNNING).delete()


def delete_old_gateway_sessions(now: datetime) -> None:
    old = list(
        GatewaySession.objects.filter(used_at__lt=now - SESSIONS_FOR).values_list("pk", flat=True)[:MOST_ROWS]
    )
    if old:
        with transaction.atomic():
            GatewayLink.objects.filter(session_id__in=old).delete()
            GatewaySession.objects.filter(pk__in=old).delete()
