"""Signalbox's plugins for agents that run plugins instead of hook commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from ninja import Path as InPath

from coordinator.api.router import Router
from coordinator.errors import NotFound

router = Router(tags=["Hooks"])
FOLDER = Path(settings.BASE_DIR) / "static" / "plugins"
SCRIPT = {"schema": {"type": "string"}}
PROBLEM = {"schema": {"$ref": "#/components/schemas/Problem"}}
ANSWERS: dict[str, Any] = {
    "responses": {
        200: {"description": "The plugin", "content": {"text/javascript": SCRIPT}},
        404: {"description": "Not Found", "content": {"application/json": PROBLEM}},
    }
}


@router.get(
    "/hooks/{agent}/plugin.js",
    auth=None,
    operation_id="plugin_file",
    summary="Download the plugin that reports an agent's sessions",
    openapi_extra=ANSWERS,
    include_in_schema=True,
)
def download_plugin(request: HttpRequest, agent: InPath[str]) -> HttpResponse:
    """For agents that run plugins: OpenCode. The file contains no key and no address, so no key is needed."""
    plugin_files = {path.stem: path for path in FOLDER.glob("*.js")}
    if agent not in plugin_files:
        raise NotFound(
            f"There is no plugin for {agent[:100]!r}. There are plugins for: {', '.join(sorted(plugin_files))}."
        )
    answer = HttpResponse(plugin_files[agent].read_bytes(), content_type="text/javascript; charset=utf-8")
    answer["Cache-Control"] = "no-cache"
    return answer
