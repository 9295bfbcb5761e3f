"""URLs of sessions: the list, a session's timeline, and the parts of it that are loaded on demand.

A session id is any text that a client chose and may contain slashes. URLs of parts therefore have `/-/` after
the id and come before the URL of the page.
"""

from __future__ import annotations

from django.urls import path

from dashboard.runs import views as runs
from dashboard.sessions.views import acts as session_acts
from dashboard.sessions.views import changes as session_changes
from dashboard.sessions.views import events as unfiltered_session_events
from dashboard.sessions.views import exports as session_exports
from dashboard.sessions.views import listing as session_list
from dashboard.sessions.views import notes as session_notes
from dashboard.sessions.views import page as sessions
from dashboard.sessions.views import session_list_actions as session_keeping
from dashboard.sessions.views import steering as session_steering
from dashboard.sessions.views import tree as session_tree
from dashboard.sessions.views import waterfall_and_comparison as session_pictures
from dashboard.usage import views as usage

app_name = "sessions"
urlpatterns = [
    path("sessions/", session_list.show_session_list, name="list"),
    path("sessions/-/rows/", session_list.show_updated_session_rows, name="rows"),
    path("sessions/-/export.csv", session_list.export_session_list_csv, name="list-csv"),
    path("sessions/-/export.ndjson", session_list.export_session_list_ndjson, name="list-ndjson"),
    path("sessions/-/keep/", session_keeping.apply_action_to_chosen_sessions, name="keep"),
    path("sessions/-/columns/", session_keeping.save_visible_session_columns, name="columns"),
    path("sessions/-/views/", session_keeping.save_or_delete_filter_preset_view, name="views"),
    path(
        "sessions/<text:session_id>/-/events/<int:event_id>/image/<slug:column>/<int:number>/",
        unfiltered_session_events.show_event_image,
        name="image",
    ),
    path(
        "sessions/<text:session_id>/-/events/<int:event_id>/value/<slug:column>/",
        unfiltered_session_events.show_event_value,
        name="value",
    ),
    path(
        "sessions/<text:session_id>/-/events/<int:event_id>/",
        unfiltered_session_events.show_raw_event,
        name="event",
    ),
    path("sessions/<text:session_id>/-/tree/", session_tree.show_session_tree, name="tree"),
    path("sessions/<text:session_id>/-/usage/", usage.show_session_usage, name="usage"),
    path("sessions/<text:session_id>/-/stop/", session_acts.stop_session_view, name="stop"),
    path("sessions/<text:session_id>/-/resume/", runs.resume_session_view, name="resume"),
    path("sessions/<text:session_id>/-/notes/", session_notes.show_session_notes, name="notes"),
    path("sessions/<text:session_id>/-/note/", session_notes.write_session_note_view, name="note"),
    path("sessions/<text:session_id>/-/prompt/", session_steering.queue_session_prompt, name="prompt"),
    path("sessions/<text:session_id>/-/stop-turn/", session_steering.stop_session_turn, name="stop-turn"),
    path("sessions/<text:session_id>/-/unqueue/", session_steering.remove_queued_prompt, name="unqueue"),
    path("sessions/<text:session_id>/-/command/", session_steering.send_session_command, name="command"),
    path("sessions/<text:session_id>/-/rename/", session_acts.rename_session_view, name="rename"),
    path(
        "sessions/<text:session_id>/-/keep/", session_keeping.edit_session_tags_and_archive, name="keep-one"
    ),
    path("sessions/<text:session_id>/-/delete/", session_acts.delete_session_view, name="delete"),
    path("sessions/<text:session_id>/-/changes/", session_changes.show_session_changes, name="changes"),
    path("sessions/<text:session_id>/-/export.ndjson", session_exports.export_session_ndjson, name="ndjson"),
    path("sessions/<text:session_id>/-/export.md", session_exports.export_session_markdown, name="markdown"),
    path("sessions/<text:session_id>/-/evidence/", session_exports.show_session_evidence, name="evidence"),
    path(
        "sessions/<text:session_id>/-/evidence.zip",
        session_exports.download_session_evidence,
        name="evidence-zip",
    ),
    path("sessions/<text:session_id>/-/print/", session_exports.show_printable_session, name="print"),
    path("sessions/<text:session_id>/-/go/", sessions.jump_to_next_or_previous_event, name="go"),
    path(
        "sessions/<text:session_id>/-/waterfall/", session_pictures.show_session_waterfall, name="waterfall"
    ),
    path("sessions/<text:session_id>/-/compare/", session_pictures.compare_sessions, name="compare"),
    path("sessions/<text:session_id>/-/minimap/", sessions.show_session_minimap, name="minimap"),
    path("sessions/<text:session_id>/-/children/", session_list.list_child_sessions, name="children"),
    path("sessions/<text:session_id>/-/nested/", sessions.show_child_session_timeline, name="nested"),
    path("sessions/<text:session_id>/-/new/", sessions.show_new_timeline_rows, name="newest"),
    path("sessions/<text:session_id>/-/header/", sessions.show_session_header, name="header"),
    path("sessions/<text:session_id>/", sessions.show_session, name="detail"),
]
