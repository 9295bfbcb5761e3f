"""What is fetched from chats: attached files, small pictures of them, a thread as a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from django.conf import settings
from django.http import FileResponse, Http404, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.utils.http import content_disposition_header
from django.views.decorators.http import require_safe

from coordinator.api.downloads import POLICY, attachment_response
from coordinator.chat import reading as chat
from coordinator.chat import thumbnails
from coordinator.errors import Busy, NotFound, Spoilt
from coordinator.models import ChatAttachment
from dashboard.chat.messages import markdown_lines
from dashboard.frame.guards import viewer
from dashboard.frame.htmx import HtmxHttpRequest
from dashboard.lists.exports import ndjson_response
from dashboard.views import errors

NO_PREVIEW = settings.BASE_DIR / "static" / "img" / "no-preview.webp"
NOT_NOW = NO_PREVIEW.with_name("unreadable.webp")


@require_safe
@viewer
def attachment(request: HtmxHttpRequest, attachment_id: str) -> HttpResponseBase:
    """Show an image or a sound; everything else is a download."""
    try:
        return attachment_response(request, chat.attachment_of(attachment_id), inline=True)
    except NotFound as problem:
        raise Http404(str(problem.detail)) from None
    except (Busy, Spoilt) as problem:
        if request.headers.get("Sec-Fetch-Dest") == "image":  # in a page: its reader wants a word, too
            return _picture(NOT_NOW, problem.status)
        return errors.unreadable(request, problem)


@require_safe
@viewer
def thumbnail(_request: HtmxHttpRequest, attachment_id: str) -> HttpResponseBase:
    """Show a small picture of an image, or one that says there is none.

    One that is not made yet is a streamed answer: it is made in a lane (edge/bridge.py), where no page waits for it.
    """
    try:
        row = chat.attachment_of(attachment_id)
    except NotFound as problem:
        raise Http404(str(problem.detail)) from None
    try:
        path = thumbnails.kept(row)
    except NotFound:
        return _picture(NO_PREVIEW, 404)
    except (Busy, Spoilt) as problem:
        return _picture(NOT_NOW, problem.status)
    return _described(FileResponse(path.open("rb")) if path else StreamingHttpResponse(_made_now(row)))


def _made_now(row: ChatAttachment) -> Iterator[bytes]:
    try:
        yield thumbnails.thumbnail(row).read_bytes()
    except NotFound:
        yield NO_PREVIEW.read_bytes()
    except (Busy, Spoilt):
        yield NOT_NOW.read_bytes()


def _picture(path: Path, status: int) -> HttpResponseBase:
    return _described(HttpResponse(path.read_bytes(), status=status))


def _described(response: HttpResponseBase) -> HttpResponseBase:
    response.headers["Content-Type"] = "image/webp"
    response.headers["Content-Security-Policy"] = POLICY
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
        return ndjson_response("chat", (chat.as_answer(row) for row in chat.whole_thread(agent.pk)))
    if form != "md":
        raise Http404("A thread can be exported as ndjson or md.")
    response = StreamingHttpResponse(
        markdown_lines(agent.name, chat.whole_thread(agent.pk)), content_type="text/markdown; charset=utf-8"
    )
    response.headers["Content-Disposition"] = content_disposition_header(True, f"{name}.md") or "attachment"
    return response
