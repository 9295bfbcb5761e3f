"""Downloads from chats: attached files, thumbnails, and a whole thread as a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from django.conf import settings
from django.http import FileResponse, Http404, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.utils.http import content_disposition_header

from coordinator.api.downloads import POLICY, attachment_response
from coordinator.chat import reading as chat
from coordinator.chat import thumbnails
from coordinator.errors import NotFound, ServiceBusy, StoredDataCorrupt
from coordinator.identity.declarations import require_safe
from coordinator.models import ChatAttachment
from dashboard.chat.messages import iterate_thread_as_markdown
from dashboard.frame import error_views as errors
from dashboard.frame.guards import require_viewer_role
from dashboard.frame.htmx import HtmxHttpRequest
from dashboard.lists.exports import build_ndjson_response

NO_PREVIEW = settings.BASE_DIR / "static" / "img" / "no-preview.webp"
NOT_NOW = NO_PREVIEW.with_name("unreadable.webp")


@require_safe
@require_viewer_role
def show_chat_attachment(request: HtmxHttpRequest, attachment_id: str) -> HttpResponseBase:
    """Return an image or audio file inline, any other file as a download."""
    try:
        return attachment_response(request, chat.require_chat_attachment(attachment_id), inline=True)
    except NotFound as problem:
        raise Http404(str(problem.detail)) from None
    except (ServiceBusy, StoredDataCorrupt) as problem:
        if request.headers.get("Sec-Fetch-Dest") == "image":  # the page shows a picture that says so
            return build_webp_response_from_file(NOT_NOW, problem.status)
        return errors.show_attachment_read_error(request, problem)


@require_safe
@require_viewer_role
def show_chat_thumbnail(_request: HtmxHttpRequest, attachment_id: str) -> HttpResponseBase:
    """Return a thumbnail of an image, or a picture that says there is none.

    A thumbnail that does not exist yet is made while the response is streamed, in a worker pool of
    coordinator/edge/http/bridge.py, so that it delays no page.
    """
    try:
        row = chat.require_chat_attachment(attachment_id)
    except NotFound as problem:
        raise Http404(str(problem.detail)) from None
    try:
        path = thumbnails.find_cached_or_require_makeable_thumbnail(row)
    except NotFound:
        return build_webp_response_from_file(NO_PREVIEW, 404)
    except (ServiceBusy, StoredDataCorrupt) as problem:
        return build_webp_response_from_file(NOT_NOW, problem.status)
    return set_webp_response_headers(
        FileResponse(path.open("rb")) if path else StreamingHttpResponse(stream_new_thumbnail(row))
    )


def stream_new_thumbnail(row: ChatAttachment) -> Iterator[bytes]:
    try:
        yield thumbnails.require_or_make_thumbnail(row).read_bytes()
    except NotFound:
        yield NO_PREVIEW.read_bytes()
    except (ServiceBusy, StoredDataCorrupt):
        yield NOT_NOW.read_bytes()


def build_webp_response_from_file(path: Path, status: int) -> HttpResponseBase:
    return set_webp_response_headers(HttpResponse(path.read_bytes(), status=status))


def set_webp_response_headers(response: HttpResponseBase) -> HttpResponseBase:
    response.headers["Content-Type"] = "image/webp"
    response.headers["Content-Security-Policy"] = POLICY
    return response


@require_safe
@require_viewer_role
def export_chat_thread(_request: HtmxHttpRequest, agent_id: str, form: str) -> HttpResponseBase:
    """Return a whole thread as a file: `ndjson` for programs, `md` for people."""
    try:
        agent = chat.require_chat_agent(agent_id)
    except NotFound as problem:
        raise Http404(str(problem.detail)) from None
    name = f"chat-{agent.pk}"
    if form == "ndjson":
        return build_ndjson_response(
            "chat", (chat.chat_message_as_json(row) for row in chat.iterate_chat_messages_of_agent(agent.pk))
        )
    if form != "md":
        raise Http404("A thread can be exported as ndjson or md.")
    response = StreamingHttpResponse(
        iterate_thread_as_markdown(agent.name, chat.iterate_chat_messages_of_agent(agent.pk)),
        content_type="text/markdown; charset=utf-8",
    )
    response.headers["Content-Disposition"] = content_disposition_header(True, f"{name}.md") or "attachment"
    return response
