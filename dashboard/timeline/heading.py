"""What stands above a session's timeline: facts of the whole session, and the numbers beside the filters."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.urls import reverse
from django.utils import timezone

from coordinator.lib import instants
from coordinator.models import LivingExecutor, Runner, Session
from coordinator.runs.stops import can_stop, is_stopping
from coordinator.sessions import silence, titles, usage
from coordinator.sessions.list_facts import began_us, masked_in, waiting_in, with_last_instant
from coordinator.sessions.statuses import LIVE
from coordinator.sessions.timeline import counts_of
from coordinator.sessions.timeline.places import EventPlace
from dashboard.sessions.changes import changed_files
from dashboard.sessions.steering import steering_context
from dashboard.timeline.facets import facets_of, tools_of
from dashboard.timeline.query import Query

IDLE = Session.Status.IDLE


def page_url(session: Session) -> str:
    return reverse("sessions:detail", args=[session.pk])


def header_context(session: Session, query: Query) -> dict[str, Any]:
    counts = counts_of(session.pk)
    spent = usage.models_of(session.pk)
    last_us = (
        with_last_instant(Session.objects.filter(pk=session.pk)).values_list("last_us", flat=True).first()
    )
    runs = list(session.runs.order_by("created_at", "run_id"))
    named = titles.of([session.pk, session.parent_session_id])
    now = timezone.now()
    living = LivingExecutor.objects.filter(pk=session.pk).first() if session.status == IDLE else None
    keeper = Runner.objects.filter(pk=living.runner_id).first() if living else None
    ended = EventPlace(last_us, 0).moment if last_us is not None else None
    return steering_context(session) | {
        "session": session,
        "changed_files": changed_files(session.pk),
        "session_title": named.get(session.pk, ""),
        "parent_title": named.get(session.parent_session_id or "", ""),
        "state": silence.IDLE if silence.idle_ids([session.pk], now) else session.status,
        "living": living,
        "living_host": keeper.hostname if keeper else "its runner",
        "waiting": waiting_in(session.pk),
        "heard": ended or session.created_at,
        "query": query,
        "counts": counts,
        "masked": masked_in(session.pk),
        "spent_by_model": spent,
        "spent": usage.total(spent) if spent else None,
        "facets": facets_of(counts, query),
        "tools": tools_of(counts, query),
        "go": f"{reverse('sessions:go', args=[session.pk])}{query.with_event}&",
        "start_url": page_url(session) + query.with_place(**{"from": "start"}),
        "end_url": page_url(session) + query.with_place(**{"from": "end"}),
        "at_default": f"{session.created_at:%Y-%m-%dT%H:%M:%S}"
        if isinstance(session.created_at, datetime)
        else "",
        "is_live": session.status in LIVE,
        "can_stop": can_stop(runs) or living is not None,
        "is_stopping": is_stopping(runs) or session.status == Session.Status.STOPPING,
        "runs": runs,
        "children": session.children.count(),
        "parent": Session.objects.filter(pk=session.parent_session_id).first(),
        "ended": ended,
        "began": instants.from_us(began_us(session))
        if isinstance(session.created_at, datetime)
        else session.created_at,
    }
