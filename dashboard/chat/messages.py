"""Prepares chat messages for templates, block by block, for pages, fragments and the event stream."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any

from django.db.models import Q
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.http import urlencode
from django.utils.safestring import SafeString

from coordinator.chat import attachments, thumbnails
from coordinator.chat.reading import message_position
from coordinator.feed.reader import FeedChange
from coordinator.lib.times import format_exact_time
from coordinator.live.fragments import PageFragment
from coordinator.models import ChatAttachment, ChatBranch, ChatMessage
from coordinator.models.chat import ChatSource
from coordinator.secrets.masking import mask_secrets_in_value
from dashboard.templatetags.signalbox import pretty_json
from dashboard.text import markdown

# A larger image is shown as its thumbnail; the lightbox shows it in full.
SMALL_BYTES = 200_000
SMALL_PIXELS = 1_400
BOX = (416, 320)  # maximum width and height of an image, in CSS pixels
_OWN_URL = re.compile(r"(?:https?://[^/]+)?/api/chat/attachments/([A-Za-z0-9._-]{1,200})")
_SESSION_ID = re.compile(r"ses_[0-9a-f]{12}")
_FACTS = ("id", "message_id", "filename", "mime_type", "size_bytes")


@dataclass(frozen=True, slots=True)
class AttachmentFacts:
    """What is known of an attached file: from its row or, if that was deleted, from its block."""

    attachment_id: str
    filename: str
    mime_type: str
    size_bytes: int | None
    width: int | None = None
    height: int | None = None
    alt: str = ""

    @property
    def url(self) -> str:
        return reverse("chat:attachment", args=[self.attachment_id])

    @property
    def image_url(self) -> str:
        """The URL of the image on the page: the file itself if it is small, else its thumbnail."""
        pixels = max(self.width or SMALL_PIXELS + 1, self.height or 0)
        if (self.size_bytes or 0) <= SMALL_BYTES and pixels <= SMALL_PIXELS:
            return self.url
        if self.mime_type not in thumbnails.TYPES:  # no thumbnail is made; the browser may show it
            return self.url
        return reverse("chat:thumbnail", args=[self.attachment_id])

    @property
    def display_pixel_dimensions(self) -> tuple[int, int] | None:
        """The size at which the image is shown; None if unknown.

        With it, the page does not shift when the image has loaded.
        """
        if not self.width or not self.height:
            return None
        scale = min(1, BOX[0] / self.width, BOX[1] / self.height)
        return max(1, round(self.width * scale)), max(1, round(self.height * scale))

    @property
    def kind(self) -> str:
        kind = self.mime_type.partition("/")[0]
        return kind if attachments.is_inline_media_type(self.mime_type) else "file"


@dataclass(frozen=True, slots=True)
class ChatBlock:
    """One block of a message. `kind` selects how the template draws it."""

    kind: str
    text: str = ""
    title: str = ""
    language: str = ""
    file: AttachmentFacts | None = None
    url: str = ""

    @property
    def html(self) -> SafeString:
        return markdown.render_markdown(self.text)

    @property
    def highlighted_code(self) -> SafeString:
        return markdown.highlight_code(self.text, language=self.language)


@dataclass(frozen=True, slots=True)
class MessageVersion:
    """The number of a message, from 1, among the alternatives at one position of an imported thread."""

    number: int
    of: int
    answers: str  # URL of the message that they answer


@dataclass(frozen=True)
class ChatMessageView:
    message: ChatMessage
    agent_name: str
    files: Mapping[str, AttachmentFacts] = field(default_factory=dict)
    version: MessageVersion | None = None

    @property
    def speaker_name(self) -> str:
        if self.message.source == ChatSource.AGENT:
            return self.agent_name
        if self.message.source == ChatSource.SYSTEM:
            return "Signalbox"
        return self.message.user_id.removeprefix("key:")

    @property
    def is_from_program(self) -> bool:
        """Return whether a program wrote the message, under its key's name."""
        return self.message.source == ChatSource.USER and self.message.user_id.startswith("key:")

    @property
    def message_url(self) -> str:
        return f"{reverse('chat:thread', args=[self.message.agent_id])}?message={self.message.pk}"

    @property
    def session_url(self) -> str:
        """Return the URL of the session that answers, from the message's metadata; empty if it names none."""
        metadata = self.message.metadata
        named_id = metadata.get("session_id") if isinstance(metadata, dict) else None
        is_id = isinstance(named_id, str) and _SESSION_ID.fullmatch(named_id)
        return reverse("sessions:detail", args=[named_id]) if is_id else ""

    @property
    def thread_position(self) -> str:
        return str(message_position(self.message))

    @property
    def time_of_day(self) -> str:
        """The time of day in UTC, until the browser replaces it by the viewer's local time."""
        at = self.message.created_at
        return at.strftime("%H:%M") if isinstance(at, datetime) else ""

    @property
    def exact_time(self) -> str:
        at = self.message.created_at
        return format_exact_time(at) if isinstance(at, datetime) else str(at)

    @cached_property
    def message_blocks(self) -> list[ChatBlock]:
        """The blocks of the message, followed by its files that no block mentions."""
        content = mask_secrets_in_value(self.message.content)
        if not isinstance(content, list):
            return [
                ChatBlock("json", text=pretty_json(content), title="Content that is not a list of blocks")
            ]
        chat_blocks = [build_chat_block(block, self.files) for block in content]
        attachment_ids = {block.file.attachment_id for block in chat_blocks if block.file}
        unnamed = [facts for pk, facts in self.files.items() if pk not in attachment_ids]
        return [*chat_blocks, *(ChatBlock(facts.kind, file=facts) for facts in unnamed)]


def build_chat_block(block: Any, files: Mapping[str, AttachmentFacts]) -> ChatBlock:
    if not isinstance(block, dict):
        return ChatBlock("json", text=pretty_json(block), title="A block of unknown form")
    facts = build_attachment_facts_of_block(block, files)
    if facts is not None:
        return ChatBlock(facts.kind, file=facts)
    return build_text_block_or_none(block) or build_link_block_or_none(block) or build_json_chat_block(block)


def build_text_block_or_none(block: Mapping[str, Any]) -> ChatBlock | None:
    kind = block.get("type")
    text = next((v for name in ("text", "code", "content") if isinstance(v := block.get(name), str)), None)
    if text is None or kind not in {"text", "code"}:
        return None
    return ChatBlock(kind, text=text, language=str(block.get("language") or ""))


def build_link_block_or_none(block: Mapping[str, Any]) -> ChatBlock | None:
    """Return a link block for an HTTP URL, else None.

    The page does not load external files; it only links to them.
    """
    url = block.get("url")
    if not isinstance(url, str) or not url.startswith(("https://", "http://")):
        return None
    return ChatBlock("link", url=url, title=str(block.get("filename") or url))


def build_json_chat_block(block: Mapping[str, Any]) -> ChatBlock:
    if block.get("type") == "tool_result":
        return build_tool_result_block(block)
    return ChatBlock("json", text=pretty_json(block), title=f"A block of kind {block.get('type')}")


def build_tool_result_block(block: Mapping[str, Any]) -> ChatBlock:
    output_value = next(
        (block[name] for name in ("output", "content", "result", "text") if block.get(name)), None
    )
    name = next((v for key in ("tool_name", "name", "tool") if isinstance(v := block.get(key), str)), "")
    failed = block.get("is_error") is True or block.get("success") is False
    title = f"{'Failed' if failed else 'Result'}{f' of {name}' if name else ''}"
    return ChatBlock("json", text=pretty_json(block if output_value is None else output_value), title=title)


def build_attachment_facts_of_block(
    block: Mapping[str, Any], files: Mapping[str, AttachmentFacts]
) -> AttachmentFacts | None:
    """Return the file to which a block refers; None if it refers to none of our attachments.

    Name and type come from the attachment's row. If that was deleted, the file is offered as a download.
    """
    pk = block_attachment_id_or_empty(block)
    if not pk:
        return None
    row = files.get(pk)
    name = row.filename if row else str(block.get("filename") or "file")
    alt = block.get("alt") if isinstance(block.get("alt"), str) else None
    return AttachmentFacts(
        pk,
        name,
        row.mime_type if row else attachments.UNKNOWN,
        integer_attachment_size_or_none(row.size_bytes)
        if row
        else positive_integer_or_none(block.get("size_bytes")),
        positive_integer_or_none(block.get("width")),
        positive_integer_or_none(block.get("height")),
        alt or name,
    )


def block_attachment_id_or_empty(block: Any) -> str:
    """Return the id of the attachment to which a block refers, or an empty text."""
    if not isinstance(block, dict):
        return ""
    pk = block.get("attachment_id")
    if isinstance(pk, str) and pk:
        return pk
    match = _OWN_URL.fullmatch(url) if isinstance(url := block.get("url"), str) else None
    return match[1] if match else ""


def positive_integer_or_none(value: Any) -> int | None:
    return value if isinstance(value, int) and 0 < value < 10**9 else None


def integer_attachment_size_or_none(stored: Any) -> int | None:
    """Return the size in a row; None if another program stored something else than a number."""
    return stored if isinstance(stored, int) else None


def build_chat_message_views(messages: Sequence[ChatMessage], agent_name: str) -> list[ChatMessageView]:
    """Return the messages prepared for templates. The files of all of them take one query."""
    files, versions = load_message_files(messages), load_message_versions(messages)
    return [
        ChatMessageView(message, agent_name, files.get(message.pk, {}), versions.get(message.pk))
        for message in messages
    ]


def load_message_versions(messages: Sequence[ChatMessage]) -> dict[str, MessageVersion]:
    """Return the version of each message that has alternatives in its imported thread, by message id."""
    ids = [message.pk for message in messages]
    parents = ChatBranch.objects.filter(pk__in=ids, parent_id__isnull=False).values("parent_id")
    rows = ChatBranch.objects.filter(parent_id__in=parents).order_by("branch_index", "message_id")
    message_ids: dict[str, list[str]] = {}
    for pk, parent in rows.values_list("pk", "parent_id"):
        message_ids.setdefault(parent or "", []).append(pk)
    agents = {message.pk: message.agent_id for message in messages}
    return {
        pk: MessageVersion(
            number,
            len(versions),
            f"{reverse('chat:thread', args=[agents[pk]])}?{urlencode({'message': parent})}",
        )
        for parent, versions in message_ids.items()
        if len(versions) > 1
        for number, pk in enumerate(versions, 1)
        if pk in agents
    }


def load_message_files(messages: Sequence[ChatMessage]) -> dict[str, dict[str, AttachmentFacts]]:
    """Return the files of each message: its own attachments, and others that its blocks mention."""
    attachment_ids = {message.pk: list_attachment_ids_in_blocks(message) for message in messages}
    attachment_condition = Q(message__in=list(attachment_ids)) | Q(
        pk__in=set().union(*attachment_ids.values())
    )
    rows = (
        ChatAttachment.objects.filter(attachment_condition).order_by("created_at", "id").values_list(*_FACTS)
    )
    facts_by_message: dict[str, dict[str, AttachmentFacts]] = {pk: {} for pk in attachment_ids}
    for pk, owner, filename, mime_type, size in rows:
        for message_id, ids in attachment_ids.items():
            if message_id == owner or pk in ids:
                facts_by_message[message_id][pk] = AttachmentFacts(
                    pk, filename, mime_type, integer_attachment_size_or_none(size), alt=filename
                )
    return facts_by_message


def list_attachment_ids_in_blocks(message: ChatMessage) -> set[str]:
    content = message.content if isinstance(message.content, list) else ()
    return {pk for block in content if (pk := block_attachment_id_or_empty(block))}


def build_chat_message_fragments(change: FeedChange) -> Sequence[PageFragment]:
    """Return the fragments that update pages with the message's thread after the change."""
    quoted = escape_css_string(change.key)
    if change.op == "delete":
        return [PageFragment(f'[data-message="{quoted}"]', "", "delete")]
    message = ChatMessage.objects.select_related("agent").filter(pk=change.key).first()
    if message is None:
        return []
    (chat_message,) = build_chat_message_views([message], message.agent.name)
    html = render_to_string("chat/_message.html", {"shown": chat_message})
    if change.op == "insert":
        return [PageFragment(f'[data-thread="{escape_css_string(message.agent_id)}"]', html, "beforeend")]
    return [PageFragment(f'[data-message="{quoted}"]', html)]


def escape_css_string(text: str) -> str:
    """Return the text escaped for a quoted CSS string."""
    return "".join(f"\\{ord(character):x} " if character in '"\\\n\r\f' else character for character in text)


def iterate_thread_as_markdown(agent_name: str, messages: Iterable[ChatMessage]) -> Iterator[str]:
    yield f"# Chat with {agent_name}\n"
    for message in messages:
        chat_message_view = ChatMessageView(message, agent_name)
        yield f"\n## {chat_message_view.speaker_name}, {chat_message_view.exact_time}\n\n"
        yield (
            "\n\n".join(format_block_as_markdown(block) for block in chat_message_view.message_blocks) + "\n"
        )


def format_block_as_markdown(block: ChatBlock) -> str:
    if block.kind == "text":
        return block.text
    if block.file is not None:
        return f"[{block.file.filename}]({block.file.url})"
    if block.kind == "link":
        return f"<{block.url}>"
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", block.text)), default=0))
    title = f"{block.title}:\n\n" if block.title else ""
    return f"{title}{fence}{block.language}\n{block.text}\n{fence}"
