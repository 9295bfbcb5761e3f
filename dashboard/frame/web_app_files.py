"""The web app manifest and the service worker, with which Signalbox can be installed on a phone."""

from __future__ import annotations

import hashlib
import json
from base64 import b64encode
from functools import lru_cache
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.staticfiles.storage import staticfiles_storage
from django.template.loader import render_to_string
from django.templatetags.static import static
from django.urls import reverse

from dashboard.frame.themes import THEMES

SOURCE = "static/js/service-worker.js"
# Files that the offline page needs.
SHELL = (
    "css/tokens.css",
    "css/base.css",
    "css/layout.css",
    "css/components.css",
    "js/offline.js",
    "js/device.js",
    "js/time-words.js",
    "favicon.svg",
    "icons.svg",
)
ACCENT, GROUND = "#2f5fde", "#f7f8fa"  # of the icon, and of the background while the app starts


def build_web_app_manifest() -> dict[str, Any]:
    """Return the web app manifest."""
    sizes = (192, 512)
    icons = [(f"img/icon-{size}.png", size, "any") for size in sizes]
    icons += [(f"img/icon-maskable-{size}.png", size, "maskable") for size in sizes]
    return {
        "id": "/ui/",
        "name": "Signalbox",
        "short_name": "Signalbox",
        "description": "The control room for people who run AI agents",
        "lang": "en",
        "start_url": reverse("approvals:inbox"),
        "scope": "/ui/",
        "display": "standalone",
        "background_color": GROUND,
        "theme_color": ACCENT,
        "icons": [
            {"src": static(name), "sizes": f"{size}x{size}", "type": "image/png", "purpose": purpose}
            for name, size, purpose in icons
        ],
    }


@lru_cache(maxsize=1)
def build_service_worker_source() -> str:
    """Return the service worker's source, preceded by what it must know about this release."""
    source = Path(settings.BASE_DIR, SOURCE).read_text()
    worker_settings = {
        "version": release_digest(),
        "offline": reverse("push:offline"),
        "shell": [reverse("push:offline"), *(static(name) for name in SHELL)],
        "icon": build_picture_data_url("icon-192.png"),
        "badge": build_picture_data_url("icon-badge-96.png"),
    }
    return f"const RELEASE = {json.dumps(worker_settings)};\n{source}"


def build_picture_data_url(picture: str) -> str:
    """Return a picture as a data URL.

    Browsers show a notification only after they have loaded its pictures; Chromium waits 90 s for each if the
    network does not answer.
    """
    data = Path(settings.BASE_DIR, "static/img", picture).read_bytes()
    return "data:image/png;base64," + b64encode(data).decode()


@lru_cache(maxsize=1)
def release_digest() -> str:
    """Return a digest of all that a browser can notice: static files, service worker, offline page."""
    digest = hashlib.sha256(Path(settings.BASE_DIR, SOURCE).read_bytes())
    digest.update(render_to_string("push/offline.html", {"theme": THEMES["system"]}).encode())
    digest.update(str(getattr(staticfiles_storage, "manifest_hash", "")).encode())
    return digest.hexdigest()[:12]
