"""Chats for machines: read a thread, post a message, download a file. The edge holds waits (edge.polling.chat)."""

from __future__ import annotations

from typing import Annotated, Any

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils import timezone
from ninja import Query, Schema
from pydantic import Field

from coordinator.actions.chat import chat as actions
from coordinator.api.auth import build_scoped_key_auth
from coordinator.api.downloads import attachment_response
from coordinator.api.router import Router
from coordinator.api.shared_types import Text, error_responses, get_request_key_identity
from coordinator.chat import reading as chat
from coordinator.errors import BadRequest, Forbidden
from coordinator.identity.keys import LOCAL_PROGRAM, KeyIdentity
from coordinator.identity.scopes import CHAT_READERS, CHAT_SPEAKERS, SPEAK_AS_AGENTS
from coordinator.lib import instants, json_bounds
from coordinator.lib.body_limits import KEY_UPLOAD, declare_request_body_allowance
from coordinator.models.chat import ChatSource

router = Router(tags=["Chat"])


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
        "id": {"type": "string", "description": "An id of your own; 409 if it is taken"},
        "user_id": {"type": "string", "description": "The person whom an agent answers"},
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


class ThreadMessage(Schema):
    """One message of a thread."""

    id: str
    agent_id: str
    user_id: str
    source: str = Field(description="user, agent or system")
    content: Any
    metadata: Any
    created_at: Any = Field(description="Milliseconds since 1970")
    place: str = Field(description="Pass it as `before` or `after` to continue from here")


class ThreadPage(Schema):
    """A page of a thread, oldest first."""

    messages: list[ThreadMessage]
    has_more: bool


class PostedMessage(Schema):
    """The message as it was stored."""

    id: str
    created_at: int


class MessageQuery(Schema):
    """Which messages to list."""

    limit: int = Field(50, description="At most 200")
    before: Text | None = Field(
        None, description="A message's `place` or milliseconds: only messages before it"
    )
    after: Text | None = Field(
        None, description="A message's `place` or milliseconds: only messages after it"
    )
    user_id: Text | None = Field(None, description="Only messages from or to this person")


@router.get(
    "/chat/attachments/{attachment_id}",
    auth=build_scoped_key_auth(*CHAT_READERS),
    # No `response`: the file itself.
    operation_id="get_attachment",
    summary="Fetch an attached file",
)
def download_attachment(request: HttpRequest, attachment_id: Text) -> HttpResponseBase:
    """As a download, in full or by Range. An agent's key may download the files of its own thread."""
    identity = get_request_key_identity(request)
    only_of = identity.bound_agents if identity.is_bound_to_agents else None
    row = chat.require_chat_attachment(attachment_id, only_of)
    return attachment_response(request, row)


@router.get(
    "/chat/{path:agent_id}/messages",
    auth=build_scoped_key_auth(*CHAT_READERS),
    response={200: ThreadPage, **error_responses(400, 404)},
    operation_id="list_messages",
    summary="Read a thread",
)
def list_thread_messages(
    request: HttpRequest, agent_id: Text, listing: Query[MessageQuery]
) -> dict[str, Any]:
    """The newest messages, or those before or after a place. `has_more` says whether there are more in that direction.

    Only keys of scope `agent` read secrets in people's messages; others see them masked.
    """
    require_chat_thread_access(get_request_key_identity(request), agent_id)
    chat.require_chat_agent(agent_id)
    if listing.after is not None:
        position = chat.parse_message_position(listing.after)
        page = chat.load_newer_message_page(agent_id, position, listing.limit, listing.user_id)
    else:
        before = None if listing.before is None else chat.parse_message_position(listing.before)
        page = chat.load_older_messages(agent_id, before, listing.limit, listing.user_id)
    reads_whole_thread = can_read_chat_secrets(get_request_key_identity(request))
    return {
        "messages": [
            chat.chat_message_as_json(row, with_secrets=reads_whole_thread) for row in page.messages
        ],
        "has_more": page.has_more,
    }


@router.post(
    "/chat/{path:agent_id}/messages",
    auth=build_scoped_key_auth(*CHAT_SPEAKERS),
    response={200: PostedMessage, **error_responses(400, 404, 409, 413)},
    operation_id="post_message",
    summary="Post a message",
    openapi_extra=REQUEST_BODY,
)
@declare_request_body_allowance(KEY_UPLOAD)
def post_thread_message(request: HttpRequest, agent_id: Text) -> dict[str, Any]:
    """An agent's key writes as that agent, any other key as itself. Send files as data URLs or as multipart."""
    body = parse_message_body(request)
    message = actions.submit_chat_message(
        agent_id,
        build_chat_message_content_blocks(body, request),
        speaker=resolve_chat_speaker(get_request_key_identity(request), agent_id, body),
        files=read_uploads_of_request(request),
        message_id=body.get("id"),
        metadata=body.get("metadata"),
        now=timezone.now(),
    )
    return {"id": message.pk, "created_at": instants.instant_to_microseconds(message.created_at) // 1000}


def read_uploads_of_request(request: HttpRequest) -> list[actions.ChatUpload]:
    """Return the files of a multipart request."""
    return [
        actions.ChatUpload(uploaded_file.file, uploaded_file.name or "", uploaded_file.content_type or "")  # type: ignore[arg-type]
        for uploaded_file in request.FILES.getlist("files")
    ]


def parse_message_body(request: HttpRequest) -> dict[str, Any]:
    if request.content_type == "multipart/form-data":
        body: dict[str, Any] = {name: request.POST[name] for name in request.POST}
        for name in ("content", "metadata"):
            if name in body:
                body[name] = parse_body_json(body[name])
    else:
        body = parse_body_json(request.body)
    if not isinstance(body, dict):
        raise BadRequest("The body must be a JSON object.")
    if not isinstance(body.get("id"), str | None) or not isinstance(body.get("user_id"), str | None):
        raise BadRequest("id and user_id must be text.")
    return body


def parse_body_json(text: str | bytes) -> Any:
    try:
        return json_bounds.load_bounded_json(text)
    except (json_bounds.JsonTooDeep, json_bounds.JsonTooHeavy) as problem:
        raise BadRequest(f"{problem}.") from None
    except (ValueError, RecursionError):
        raise BadRequest("The body is not JSON.") from None


def build_chat_message_content_blocks(fields: dict[str, Any], request: HttpRequest) -> Any:
    blocks = fields.get("content", [] if "text" in fields or request.FILES else None)
    text = fields.get("text")
    return [{"type": "text", "text": text}, *blocks] if text and isinstance(blocks, list) else blocks


def resolve_chat_speaker(identity: KeyIdentity, agent_id: str, fields: dict[str, Any]) -> actions.ChatSpeaker:
    """Return who speaks, by the key alone; a body that claims to be somebody else is refused."""
    to = fields.get("user_id") or "default"
    if "\x00" in to or len(to) > 200:
        raise BadRequest("user_id is not a valid name.")
    source = fields.get("source")
    if source is not None and source not in ChatSource.values:
        raise BadRequest(f"source must be one of {', '.join(ChatSource.values)} and must match the key.")
    if identity == LOCAL_PROGRAM and source == ChatSource.AGENT:
        # Without API keys callers cannot be distinguished: a laptop's agents state themselves that they are agents.
        return actions.ChatSpeaker(ChatSource.AGENT, to, identity.caller_actor)
    speaker = actions.build_api_key_speaker(identity, agent_id, to=to)
    if source not in (None, speaker.source):
        raise Forbidden(f"This key writes as {speaker.source}, not as {source}.")
    return speaker


def require_chat_thread_access(identity: KeyIdentity, agent_id: str) -> None:
    """Raise Forbidden where an agent's key reads another agent's thread."""
    if not identity.can_speak_for_agent(agent_id):
        raise Forbidden(f"This key is bound to {identity.bound_agents_label} and may not read other threads.")


def can_read_chat_secrets(identity: KeyIdentity) -> bool:
    """Say whether a key reads what people wrote as they wrote it: agents do, for others secrets are masked."""
    return bool(identity.scopes & SPEAK_AS_AGENTS)


class MessageWait(Schema):
    """What to wait for."""

    after: Text | None = Field(
        None, description="A `place`; without it, everything since the agent's own last message"
    )
    timeout: Annotated[float, Field(ge=0)] = Field(30, description="Seconds to wait, at most 600")


class NewMessages(Schema):
    """Messages of others to the agent, and the `after` of the next wait."""

    messages: list[ThreadMessage]
    after: str


@router.get(
    "/chat/{path:agent_id}/messages/wait",
    auth=build_scoped_key_auth(*CHAT_READERS),
    response={200: NewMessages, **error_responses(400, 404)},
    operation_id="wait_for_messages",
    summary="Wait for messages to an agent",
)
def wait_for_thread_messages(
    request: HttpRequest, agent_id: Text, waiting: Query[MessageWait]
) -> dict[str, Any]:
    """Answers as soon as people or programs write to the agent, or with no messages after `timeout`; then ask again."""
    # The edge holds this call (edge.polling.chat). Here, under a plain WSGI server, it answers at once.
    require_chat_thread_access(get_request_key_identity(request), agent_id)
    position = find_wait_start_position(agent_id, waiting.after)
    with_secrets = can_read_chat_secrets(get_request_key_identity(request))
    return chat.unanswered_messages_json_or_none(agent_id, position, with_secrets=with_secrets) or {
        "messages": [],
        "after": str(position),
    }


def find_wait_start_position(agent_id: str, after: str | None) -> chat.MessagePosition:
    """Return the place that a wait begins at. Raises NotFound for no such agent."""
    chat.require_chat_agent(agent_id)
    return chat.parse_message_position(after) if after else chat.last_agent_position_or_epoch(agent_id)
