"""Finds one address of every page by following links from the first one, as a person would."""

from __future__ import annotations

import re
from collections import deque
from html import unescape
from urllib.parse import urljoin, urlsplit

import httpx
from django.urls import Resolver404, resolve

HREF = re.compile(r'<a\b[^>]*?\shref="([^"]+)"')
# In the admin, one table of each kind stands for all (tests/admin opens every one of them), and one table's forms for
# adding and deleting, and its history.
ADMIN = re.compile(
    r"/admin/(?:$|auth/user/|coordinator/(?:agent|pluginsetting|event|auditlog)/(?:[^/]+/change/)?$)"
)
# What leads away or hands out a file.
NO_PAGE = re.compile(
    r"/(?:export|raw|download|file|attachments?|thumbnail)\b|^/ui/sign-out/|\.(?:json|ndjson|md)\b"
)


def pages_from(client: httpx.Client, *starts: str) -> list[str]:
    """Return addresses of HTML pages that links lead to from `starts`: of a route one, and one with a query."""
    waiting, found = deque(starts), []
    taken = {(resolve(start).route, False) for start in starts}
    while waiting:
        place = waiting.popleft()
        answer = client.get(place, follow_redirects=True)
        if not answer.headers.get("content-type", "").startswith("text/html"):
            continue
        assert answer.status_code == 200, f"{place} answered {answer.status_code}"
        found.append(place)
        for link in HREF.findall(answer.text):
            path = urlsplit(urljoin(place, unescape(link)))
            if path.query.startswith("_changelist_filters="):
                continue  # a form that leads back to its list as it was
            address = f"{path.path}?{path.query}" if path.query else path.path
            if path.netloc or not _is_page(path.path):
                continue
            kind = (resolve(path.path).route, bool(path.query))
            if kind not in taken:
                taken.add(kind)
                waiting.append(address)
    return found


def _is_page(path: str) -> bool:
    if NO_PAGE.search(path) or not (path.startswith("/ui/") or ADMIN.match(path)):
        return False
    try:
        resolve(path)
    except Resolver404:
        return False
    return True
