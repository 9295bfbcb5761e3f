"""What a card's form says: the ids, what was seen of each, and the rest that a person chose."""

from __future__ import annotations

import html
import re
from typing import Any

import httpx

from coordinator.models import PermissionRequest
from coordinator.policy.requests.judged_content import judged_card_digest


def values(page: str, name: str) -> list[str]:
    """Return the values of all fields of a name on a page, in order."""
    found = re.findall(rf'<(?:input|option)\b[^>]*\bname="{name}"[^>]*\bvalue="([^"]*)"', page)
    return [html.unescape(value) for value in found]


def targets(page: str) -> list[str]:
    """Return what each card on a page names as the target, in its headline or below it, in order."""
    found = []
    for article in re.findall(r"<article.*?</article>", page, re.DOTALL):
        below = re.search(r'class="asked-value">([^<]*)<', article)
        allowed = re.search(r'Allow\s+<code class="act">([^<]*)<', article)  # asked for without a tool
        told = below or allowed or re.search(r'class="act-rest">(?:for |[^<]*\()([^<]*?)\)?</span>', article)
        found.append(html.unescape(told[1]) if told else "")
    return found


def form(page: str, verdict: str = "approved", **more: Any) -> dict[str, Any]:
    """Return the form of the only card on a page."""
    ids = [one for one in values(page, "ids") if f":{one}" in "".join(values(page, "judged"))]
    return {"ids": ids, "judged": values(page, "judged"), "verdict": verdict, **more}


def form_for(*rows: PermissionRequest, verdict: str = "approved", **more: Any) -> dict[str, Any]:
    """Return the form of a card that shows these rows as they are."""
    judged = [f"{judged_card_digest(row)}:{row.request_id}" for row in rows]
    return {"ids": [row.request_id for row in rows], "judged": judged, "verdict": verdict, **more}


def served_form(
    browser: httpx.Client, request_id: str, verdict: str = "approved", **more: Any
) -> dict[str, Any]:
    """Return the form of a request's own page, as the served program shows it to a signed-in person."""
    page = browser.get(f"/ui/approvals/{request_id}/").text
    return {"ids": request_id, "judged": values(page, "judged"), "verdict": verdict, **more}
