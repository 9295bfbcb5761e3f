"""The header above a session's timeline: facts of the whole session, and the counts of the filters."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.urls import reverse
from django.utils import timezone

from coordinator.lib import instants
from coordinator.models import LivingExecutor, Runner, Session
from coordinator.models.agent_names import find_linked_agent
from coordinator.runs.stops import can_stop_session, is_session_stopping
from coordinator.sessions import inactivity, titles
from coordinator.sessions.list_facts import (
    annotate_sessions_with_last_event,
    count_session_masked_secrets,
    count_session_waiting_requests,
    session_start_microseconds,
)
from coordinator.sessions.statuses import LIVE
from coordinator.sessions.timeline import load_session_event_counts
from coordinator.sessions.timeline.positions import EventPosition
from coordinator.sessions.unguarded_calls import load_guard_report
from coordinator.usage import reading as usage
from dashboard.sessions.changes import count_changed_files_if_reported
from dashboard.sessions.steering import build_steering_context
from dashboard.sessions.summary import load_session_summary
from dashboard.timeline.facets import build_timeline_facets, build_tool_facets
from dashboard.timeline.query import TimelineQuery

IDLE = Session.Status.IDLE


def session_page_url(session: Session) -> str:
    return reverse("sessions:detail", args=[session.pk])


def build_session_header_context(session: Session, query: TimelineQuery) -> dict[str, Any]:
    counts = load_session_event_counts(session.pk)
    spent = usage.load_session_usage_by_model(session.pk)
    last_us = (
        annotate_sessions_with_last_event(Session.objects.filter(pk=session.pk))
        .values_list("last_us", flat=True)
        .first()
    )
    runs = list(session.runs.order_by("created_at", "run_id"))
    session_titles = titles.load_session_titles([session.pk, session.parent_session_id])
    now = timezone.now()
    living = LivingExecutor.objects.filter(pk=session.pk).first() if session.status == IDLE else None
    keeper = Runner.objects.filter(pk=living.runner_id).first() if living else None
    ended = EventPosition(last_us, 0).position_datetime if last_us is not None else None
    steering = build_steering_context(session)
    return steering | {
        "session": session,
        "changed_files": count_changed_files_if_reported(session.pk),
        "session_title": session_titles.get(session.pk, ""),
        "parent_title": session_titles.get(session.parent_session_id or "", ""),
        "state": inactivity.IDLE if inactivity.find_idle_session_ids([session.pk], now) else session.status,
        "agent": find_linked_agent(session.agent_name),
        "living": living,
        "living_host": keeper.hostname if keeper else "its runner",
        "waiting": count_session_waiting_requests(session.pk),
        "heard": ended or session.created_at,
        "guard": load_guard_report(session),
        "query": query,
        "counts": counts,
        "summary": load_session_summary(session, counts),
        "masked": count_session_masked_secrets(session.pk),
        "spent_by_model": spent,
        "spent": usage.sum_token_usages(spent) if spent else None,
        "facets": build_timeline_facets(counts, query),
        "tools": build_tool_facets(counts, query),
        "go": f"{reverse('sessions:go', args=[session.pk])}{query.query_string_with_event}&",
        "start_url": session_page_url(session) + query.query_string_at_position(**{"from": "start"}),
        "end_url": session_page_url(session) + query.query_string_at_position(**{"from": "end"}),
        "at_default": f"{session.created_at:%Y-%m-%dT%H:%M:%S}"
        if isinstance(session.created_at, datetime)
        else "",
        "is_live": session.status in LIVE,
        "stop_has_choice": bool(steering["driven"] or steering["queued"]),
        "can_stop": can_stop_session(runs) or living is not None,
        "is_stopping": is_session_stopping(runs) or session.status == Session.Status.STOPPING,
        "runs": runs,
        "children": session.children.count(),
        "parent": Session.objects.filter(pk=session.parent_session_id).first(),
        "ended": ended,
        "began": instants.instant_from_microseconds(session_start_microseconds(session))
        if isinstance(session.created_at, datetime)
        else session.created_at,
    }
