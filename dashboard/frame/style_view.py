"""All components on one page, for comparison and screenshots (admins only)."""

from __future__ import annotations

import re
from datetime import timedelta

from django.conf import settings
from django.core.paginator import Paginator
from django.http import HttpResponse
from django.shortcuts import render
from django.utils import timezone

from coordinator.identity.declarations import require_safe
from coordinator.models import UnreadableText
from dashboard.frame.guards import require_admin
from dashboard.frame.htmx import HtmxHttpRequest
from dashboard.text.states import STATES

ICONS = re.findall(r'<symbol id="([^"]+)"', (settings.BASE_DIR / "static" / "icons.svg").read_text())
DEEP = {
    "command": "npm run deploy -- --prod",
    "cwd": "/srv/app",
    "env": {"CI": "1"},
    "files": [f"src/billing/part_{number}.py" for number in range(9)],
}


@require_safe
@require_admin
def show_style_guide(request: HtmxHttpRequest) -> HttpResponse:
    now = timezone.now()
    context = {
        "states": STATES,
        "icons": ICONS,
        "moments": [now, now - timedelta(minutes=5), now - timedelta(days=3), now + timedelta(hours=2)],
        "far": now - timedelta(days=400),
        "odd": UnreadableText("yesterday-ish"),
        "soon": now + timedelta(minutes=4, seconds=10),
        "deep": DEEP,
        "page": Paginator(range(1234), 25).page(3),
    }
    return render(request, "style/style.html", context)
