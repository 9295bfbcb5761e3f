"""Sessions: the list, one session's timeline, and the pieces of it that are fetched on demand.

Session ids may be any text that a client chose, slashes included, so the pieces stand behind `/-/`, before the page.
"""

from __future__ import annotations

from django.urls import path

from dashboard.views import (
    runs,
    session_acts,
    session_changes,
    session_events,
    session_exports,
    session_list,
    session_notes,
    session_steering,
    sessions,
)

app_name = "sessions"
urlpatterns = [
    path("sessions/", session_list.listing, name="list"),
    path("sessions/-/rows/", session_list.as_they_are, name="rows"),
    path(
        "sessions/<text:session_id>/-/events/<int:event_id>/image/<slug:column>/<int:number>/",
        session_events.image,
        name="image",
    ),
    path(
        "sessions/<text:session_id>/-/events/<int:event_id>/value/<slug:column>/",
        session_events.value,
        name="value",
    ),
    path("sessions/<text:session_id>/-/events/<int:event_id>/", session_events.raw_event, name="event"),
    path("sessions/<text:session_id>/-/stop/", session_acts.stop, name="stop"),
    path("sessions/<text:session_id>/-/resume/", runs.resume, name="resume"),
    path("sessions/<text:session_id>/-/notes/", session_notes.notes, name="notes"),
    path("sessions/<text:session_id>/-/note/", session_notes.write, name="note"),
    path("sessions/<text:session_id>/-/prompt/", session_steering.prompt, name="prompt"),
    path("sessions/<text:session_id>/-/stop-turn/", session_steering.stop_turn, name="stop-turn"),
    path("sessions/<text:session_id>/-/unqueue/", session_steering.unqueue, name="unqueue"),
    path("sessions/<text:session_id>/-/command/", session_steering.command, name="command"),
    path("sessions/<text:session_id>/-/rename/", session_acts.rename, name="rename"),
    path("sessions/<text:session_id>/-/delete/", session_acts.delete, name="delete"),
    path("sessions/<text:session_id>/-/changes/", session_changes.changes, name="changes"),
    path("sessions/<text:session_id>/-/export.ndjson", session_exports.ndjson, name="ndjson"),
    path("sessions/<text:session_id>/-/export.md", session_exports.markdown, name="markdown"),
    path("sessions/<text:session_id>/-/evidence/", session_exports.evidence, name="evidence"),
    path("sessions/<text:session_id>/-/evidence.zip", session_exports.evidence_zip, name="evidence-zip"),
    path("sessions/<text:session_id>/-/print/", session_exports.printable, name="print"),
    path("sessions/<text:session_id>/-/go/", sessions.go, name="go"),
    path("sessions/<text:session_id>/-/minimap/", sessions.minimap, name="minimap"),
    path("sessions/<text:session_id>/-/children/", session_list.children, name="children"),
    path("sessions/<text:session_id>/-/nested/", sessions.nested, name="nested"),
    path("sessions/<text:session_id>/-/new/", sessions.newest, name="newest"),
    path("sessions/<text:session_id>/-/header/", sessions.header, name="header"),
    path("sessions/<text:session_id>/", sessions.detail, name="detail"),
]
