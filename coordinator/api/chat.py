"""Chats for machines: read a thread, say something, fetch a file. Waiting for messages is the edge's (edge.chat)."""

from __future__ import annotations

import json
from typing import Annotated, Any

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils import timezone
from ninja import Query, Router, Schema
from pydantic import Field

from coordinator import chat, instants
from coordinator.actions import chat as actions
from coordinator.actions.keys import LOCAL_PROGRAM, KeyIdentity
from coordinator.api.auth import requires
from coordinator.api.downloads import attachment_response
from coordinator.api.vocabulary import Text, caller, problems
from coordinator.errors import BadRequest, Forbidden
from coordinator.models.chat import ChatSource

router = Router(tags=["Chat"])

READERS = ("agent", "operator", "read")
SPEAKERS = ("agent", "operator")

_BODY = {
    "type": "object",
    "required": ["content"],
    "properties": {
        "content": {
            "type": "array",
            "items": {"type": "object"},
            "minItems": 1,
            "maxItems": 20,
            "description": "Blocks: text, image, code, tool_result, file, audio. A data URL in one becomes a file.",
        },
        "id": {"type": "string", "description": "Your own id; one that is taken is answered 409"},
        "user_id": {"type": "string", "description": "Whom an agent answers"},
        "metadata": {"type": "object"},
    },
}
_FORM = {
    "type": "object",
    "properties": {
        **{name: {"type": "string"} for name in ("text", "content", "id", "user_id", "metadata")},
        "files": {"type": "array", "items": {"type": "string", "format": "binary"}},
    },
}
REQUEST_BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": _BODY}, "multipart/form-data": {"schema": _FORM}},
    }
}


class Message(Schema):
    """One message of a thread."""

    id: str
    agent_id: str
    user_id: str
    source: str = Field(description="user, agent or system")
    content: Any
    metadata: Any
    created_at: Any = Field(description="Milliseconds since 1970")
    place: str = Field(description="Give it as before or after to go on from here")


class Messages(Schema):
    """A page of a thread, in the order it is read."""

    messages: list[Message]
    has_more: bool


class Posted(Schema):
    """What became of a message."""

    id: str
    created_at: int


class Listing(Schema):
    """Which messages to list."""

    limit: int = Field(50, description="At most 200")
    before: Text | None = Field(None, description="A place, or milliseconds: only what stands before")
    after: Text | None = Field(None, description="A place, or milliseconds: only what stands after")
    user_id: Text | None = Field(None, description="Only what this person said or was told")


@router.get(
    "/chat/attachments/{attachment_id}",
    auth=requires(*READERS),
    # No `response`: the file itself.
    operation_id="get_attachment",
    summary="Fetch an attached file",
)
def get_attachment(request: HttpRequest, attachment_id: Text) -> HttpResponseBase:
    """As a download, in full or by Range. An agent's key fetches what is in its own thread."""
    row = chat.attachment_of(attachment_id, caller(request).agent_id)
    return attachment_response(request, row)


@router.get(
    "/chat/{path:agent_id}/messages",
    auth=requires(*READERS),
    response={200: Messages, **problems(400, 404)},
    operation_id="list_messages",
    summary="Read a thread",
)
def list_messages(request: HttpRequest, agent_id: Text, listing: Query[Listing]) -> dict[str, Any]:
    """The newest messages, or those before or after a place. `has_more` tells of more in that direction."""
    require_own(caller(request), agent_id)
    chat.agent_of(agent_id)
    if listing.after is not None:
        place = chat.place_from(listing.after)
        page = chat.newer_than(agent_id, place, listing.limit, listing.user_id)
    else:
        before = None if listing.before is None else chat.place_from(listing.before)
        page = chat.older_than(agent_id, before, listing.limit, listing.user_id)
    return {"messages": [chat.as_answer(row) for row in page.messages], "has_more": page.has_more}


@router.post(
    "/chat/{path:agent_id}/messages",
    auth=requires(*SPEAKERS),
    response={200: Posted, **problems(400, 404, 409, 413)},
    operation_id="post_message",
    summary="Say something",
    openapi_extra=REQUEST_BODY,
)
def post_message(request: HttpRequest, agent_id: Text) -> dict[str, Any]:
    """An agent's key speaks as that agent, any other key as itself. Files come as data URLs or as multipart."""
    given = _given(request)
    message = actions.post(
        agent_id,
        _content(given, request),
        by=_speaker(caller(request), agent_id, given),
        files=uploads(request),
        message_id=given.get("id"),
        metadata=given.get("metadata"),
        now=timezone.now(),
    )
    return {"id": message.pk, "created_at": instants.to_us(message.created_at) // 1000}


def uploads(request: HttpRequest) -> list[actions.Upload]:
    """Return the files of a multipart request."""
    return [
        actions.Upload(one.file, one.name or "", one.content_type or "")  # type: ignore[arg-type]
        for one in request.FILES.getlist("files")
    ]


def _given(request: HttpRequest) -> dict[str, Any]:
    if request.content_type == "multipart/form-data":
        given: dict[str, Any] = {name: request.POST[name] for name in request.POST}
        for name in ("content", "metadata"):
            if name in given:
                given[name] = _json(given[name])
    else:
        given = _json(request.body)
    if not isinstance(given, dict):
        raise BadRequest("The body must be a JSON object.")
    if not isinstance(given.get("id"), str | None) or not isinstance(given.get("user_id"), str | None):
        raise BadRequest("id and user_id must be text.")
    return given


def _json(text: str | bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise BadRequest("That is no JSON.") from None


def _content(given: dict[str, Any], request: HttpRequest) -> Any:
    blocks = given.get("content", [] if "text" in given or request.FILES else None)
    text = given.get("text")
    return [{"type": "text", "text": text}, *blocks] if text and isinstance(blocks, list) else blocks


def _speaker(identity: KeyIdentity, agent_id: str, given: dict[str, Any]) -> actions.Speaker:
    """Return who speaks, by the key alone; a body that claims to be somebody else is refused."""
    to = given.get("user_id") or "default"
    if "\x00" in to or len(to) > 200:
        raise BadRequest("user_id is no name.")
    source = given.get("source")
    if source is not None and source not in ChatSource.values:
        raise BadRequest(f"source is one of {', '.join(ChatSource.values)}, and follows from the key.")
    if identity == LOCAL_PROGRAM and source == ChatSource.AGENT:
        # Without API keys there is nobody to tell apart: a laptop's agents say themselves that they are.
        return actions.Speaker(ChatSource.AGENT, to, identity.actor)
    speaker = actions.key_speaking(identity, agent_id, to=to)
    if source not in (None, speaker.source):
        raise Forbidden(f"This key speaks as {speaker.source}, not as {source}.")
    return speaker


def require_own(identity: KeyIdentity, agent_id: str) -> None:
    """Raise Forbidden where an agent's key reads another agent's thread."""
    if identity.agent_id is not None and identity.agent_id != agent_id:
        raise Forbidden(f"This key speaks as {identity.agent_id} and may read no other thread.")


class Waiting(Schema):
    """What to wait for."""

    after: Text | None = Field(
        None, description="A place; without one, all since the agent's own last message"
    )
    timeout: Annotated[float, Field(ge=0)] = Field(30, description="Seconds to wait, at most 600")


class News(Schema):
    """What others said to the agent, and the place to go on from."""

    messages: list[Message]
    after: str


@router.get(
    "/chat/{path:agent_id}/messages/wait",
    auth=requires(*READERS),
    response={200: News, **problems(400, 404)},
    operation_id="wait_for_messages",
    summary="Wait for messages to an agent",
)
def wait_for_messages(request: HttpRequest, agent_id: Text, waiting: Query[Waiting]) -> dict[str, Any]:
    """Answer as soon as people or programs say something to the agent, or empty after `timeout`; then ask again.

    Held at the edge (coordinator/edge/chat.py). Under a plain WSGI server, which cannot hold calls, it answers
    at once.
    """
    require_own(caller(request), agent_id)
    place = begin(agent_id, waiting.after)
    return chat.told(agent_id, place) or {"messages": [], "after": str(place)}


def begin(agent_id: str, after: str | None) -> chat.Place:
    """Return the place that a wait begins at. Raises NotFound for no such agent."""
    chat.agent_of(agent_id)
    return chat.place_from(after) if after else chat.since_last_word(agent_id)
