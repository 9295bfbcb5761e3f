"""Sessions: the list, one session's timeline, and the pieces of it that are fetched on demand.

Session ids may be any text that a client chose, slashes included, so they have a converter of their own, and the
pieces stand behind `/-/`, before the page.
"""

from __future__ import annotations

from django.urls import path, register_converter

from dashboard.views import runs, session_acts, session_events, session_exports, session_list, sessions


class SessionId:
    """Any text."""

    regex = r"[\s\S]+"

    def to_python(self, value: str) -> str:
        """Return the id."""
        return value

    def to_url(self, value: str) -> str:
        """Return the id; Django quotes it."""
        return value


register_converter(SessionId, "session")

app_name = "sessions"
urlpatterns = [
    path("sessions/", session_list.listing, name="list"),
    path("sessions/-/rows/", session_list.as_they_are, name="rows"),
    path(
        "sessions/<session:session_id>/-/events/<int:event_id>/image/<slug:column>/<int:number>/",
        session_events.image,
        name="image",
    ),
    path(
        "sessions/<session:session_id>/-/events/<int:event_id>/value/<slug:column>/",
        session_events.value,
        name="value",
    ),
    path("sessions/<session:session_id>/-/events/<int:event_id>/", session_events.raw_event, name="event"),
    path("sessions/<session:session_id>/-/stop/", session_acts.stop, name="stop"),
    path("sessions/<session:session_id>/-/resume/", runs.resume, name="resume"),
    path("sessions/<session:session_id>/-/delete/", session_acts.delete, name="delete"),
    path("sessions/<session:session_id>/-/export.ndjson", session_exports.ndjson, name="ndjson"),
    path("sessions/<session:session_id>/-/export.md", session_exports.markdown, name="markdown"),
    path("sessions/<session:session_id>/-/print/", session_exports.printable, name="print"),
    path("sessions/<session:session_id>/-/go/", sessions.go, name="go"),
    path("sessions/<session:session_id>/-/minimap/", sessions.minimap, name="minimap"),
    path("sessions/<session:session_id>/-/waterfall/", sessions.waterfall, name="waterfall"),
    path("sessions/<session:session_id>/-/children/", session_list.children, name="children"),
    path("sessions/<session:session_id>/-/nested/", sessions.nested, name="nested"),
    path("sessions/<session:session_id>/-/new/", sessions.newest, name="newest"),
    path("sessions/<session:session_id>/-/header/", sessions.header, name="header"),
    path("sessions/<session:session_id>/", sessions.detail, name="detail"),
]
