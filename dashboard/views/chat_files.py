"""What is fetched from chats: attached files, small pictures of them, a thread as a file."""

from __future__ import annotations

from collections.abc import Iterator

from django.http import FileResponse, Http404, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.utils.http import content_disposition_header
from django.views.decorators.http import require_safe

from coordinator import chat
from coordinator.api.downloads import POLICY, attachment_response
from coordinator.errors import NotFound
from coordinator.models import ChatMessage
from coordinator.thumbnails import thumbnail as thumbnail_of
from dashboard.chat_messages import markdown_lines
from dashboard.exports import ndjson_response
from dashboard.guards import viewer
from dashboard.htmx import HtmxHttpRequest


@require_safe
@viewer
def attachment(request: HtmxHttpRequest, attachment_id: str) -> HttpResponseBase:
    """Show an image or a sound; everything else is a download."""
    try:
        return attachment_response(request, chat.attachment_of(attachment_id), inline=True)
    except NotFound as problem:
        raise Http404(str(problem.detail)) from None


@require_safe
@viewer
def thumbnail(request: HtmxHttpRequest, attachment_id: str) -> HttpResponseBase:
    """Show a small picture of an image."""
    etag = f'"{attachment_id}-small"'
    if request.headers.get("If-None-Match") == etag:
        return HttpResponse(status=304)
    try:
        path = thumbnail_of(chat.attachment_of(attachment_id))
    except NotFound as problem:
        raise Http404(str(problem.detail)) from None
    response = FileResponse(path.open("rb"), content_type="image/webp")
    response.headers["Cache-Control"] = "private, max-age=31536000, immutable"
    response.headers["Content-Security-Policy"] = POLICY
    response.headers["ETag"] = etag
    return response


@require_safe
@viewer
def export(_request: HtmxHttpRequest, agent_id: str, form: str) -> HttpResponseBase:
    """Answer with a whole thread: `ndjson` as machines read it, `md` to read anywhere."""
    try:
        agent = chat.agent_of(agent_id)
    except NotFound as problem:
        raise Http404(str(problem.detail)) from None
    name = f"chat-{agent.pk}"
    if form == "ndjson":
        return ndjson_response("chat", (chat.as_answer(row) for row in whole_thread(agent.pk)))
    if form != "md":
        raise Http404("A thread is exported as ndjson or md.")
    response = StreamingHttpResponse(
        markdown_lines(agent.name, whole_thread(agent.pk)), content_type="text/markdown; charset=utf-8"
    )
    response.headers["Content-Disposition"] = content_disposition_header(True, f"{name}.md") or "attachment"
    return response


def whole_thread(agent_id: str) -> Iterator[ChatMessage]:
    """Yield every message from the first on, page by page."""
    page = chat.newer_than(agent_id, chat.place_from("-62135596800000:"), chat.MOST)
    while page.messages:
        yield from page.messages
        page = chat.newer_than(agent_id, chat.place_of(page.messages[-1]), chat.MOST)
