"""All pages under /ui/. Each subject adds a module with an `app_name` and one line here.

frame/rail.py has the pages' labels in the rail. Each view declares who may open it and how large its request
may be (coordinator/identity/declarations.py).
"""

from __future__ import annotations

from django.urls import include, path

from dashboard.frame import converters  # noqa: F401 - registers <text:…> before the modules below use it
from dashboard.frame.rail_badge import show_rail_badge
from dashboard.frame.style_view import show_style_guide
from dashboard.overview.first_steps import dismiss_first_steps, show_first_steps_fragment
from dashboard.overview.views import show_overview

urlpatterns = [
    path("", show_overview, name="overview"),
    path("first-steps/", show_first_steps_fragment, name="first-steps"),
    path("first-steps/dismiss/", dismiss_first_steps, name="first-steps-dismiss"),
    path("rail/<slug:key>/badge/", show_rail_badge, name="rail-badge"),
    path("style/", show_style_guide, name="style"),
    path("", include("dashboard.accounts.urls")),
    path("agents/", include("dashboard.agents.urls")),
    path("approvals/", include("dashboard.approvals.urls")),
    path("audit/", include("dashboard.audit.urls")),
    path("brake/", include("dashboard.brakes.urls")),
    path("budgets/", include("dashboard.budgets.urls")),
    path("deciders/", include("dashboard.deciders.urls")),
    path("claude-code/", include("dashboard.frame.redirects")),
    path("connections/", include("dashboard.connections.urls")),
    path("help/", include("dashboard.help.urls")),
    path("costs/", include("dashboard.usage.urls")),
    path("mcp/", include("dashboard.mcp.urls")),
    path("chat/", include("dashboard.chat.urls")),
    path("keys/", include("dashboard.accounts.key_urls")),
    path("", include("dashboard.notifications.push_urls")),
    path("", include("dashboard.palette.urls")),
    path("people/", include("dashboard.people.urls")),
    path("plugins/", include("dashboard.plugins.urls")),
    path("rules/", include("dashboard.rules.urls")),
    path("runs/", include("dashboard.runs.urls")),
    path("runners/", include("dashboard.runs.runner_urls")),
    path("", include("dashboard.search.urls")),
    path("", include("dashboard.sessions.urls")),
]
