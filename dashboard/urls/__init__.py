"""Every page under /ui/. A subject brings its own module with `app_name`, and one line here.

What its pages are called in the rail stands in frame/rail.py, and what their forms may be sent in
coordinator/edge/limits.py; who may open them is written down in tests/guards/table.py.
"""

from __future__ import annotations

from django.urls import include, path

from dashboard.urls import converters  # noqa: F401 - registers <text:…> before the modules below use it
from dashboard.views.overview import show_overview
from dashboard.views.rail_badge import show_rail_badge
from dashboard.views.style import show_style_guide

urlpatterns = [
    path("", show_overview, name="overview"),
    path("rail/<slug:key>/badge/", show_rail_badge, name="rail-badge"),
    path("style/", show_style_guide, name="style"),
    path("", include("dashboard.urls.accounts")),
    path("agents/", include("dashboard.urls.agents")),
    path("approvals/", include("dashboard.urls.approvals")),
    path("audit/", include("dashboard.urls.audit")),
    path("brake/", include("dashboard.urls.brakes")),
    path("budgets/", include("dashboard.urls.budgets")),
    path("deciders/", include("dashboard.urls.deciders")),
    path("claude-code/", include("dashboard.urls.redirects")),
    path("connections/", include("dashboard.urls.connections")),
    path("costs/", include("dashboard.urls.costs")),
    path("help/", include("dashboard.urls.help")),
    path("mcp/", include("dashboard.urls.mcp")),
    path("chat/", include("dashboard.urls.chat")),
    path("keys/", include("dashboard.urls.keys")),
    path("", include("dashboard.urls.push")),
    path("plugins/", include("dashboard.urls.plugins")),
    path("rules/", include("dashboard.urls.rules")),
    path("runs/", include("dashboard.urls.runs")),
    path("runners/", include("dashboard.urls.runners")),
    path("", include("dashboard.urls.search")),
    path("", include("dashboard.urls.sessions")),
]
