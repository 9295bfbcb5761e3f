"""Makes chat messages ready to be drawn: block by block, the same on the page, in fragments and on the stream."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any

from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.safestring import SafeString

from coordinator import attachments
from coordinator.chat import place_of
from coordinator.edge.fragments import Fragment
from coordinator.feed import Change
from coordinator.models import ChatAttachment, ChatMessage
from coordinator.models.chat import ChatSource
from dashboard import markdown
from dashboard.templatetags.signalbox import pretty_json
from dashboard.times import exact

# From this size on an image is drawn from its thumbnail; the lightbox shows it in full.
SMALL_BYTES = 200_000
SMALL_PIXELS = 1_400
BOX = (416, 320)  # CSS pixels that an image takes up at most
_OWN_URL = re.compile(r"(?:https?://[^/]+)?/api/chat/attachments/([A-Za-z0-9._-]{1,200})")
_FACTS = ("id", "message_id", "filename", "mime_type", "size_bytes")


@dataclass(frozen=True, slots=True)
class FileFacts:
    """What is known of an attached file: from its row, or where that is gone from its block."""

    attachment_id: str
    filename: str
    mime_type: str
    size_bytes: int | None
    width: int | None = None
    height: int | None = None
    alt: str = ""

    @property
    def url(self) -> str:
        """Where people see or fetch it."""
        return reverse("chat:attachment", args=[self.attachment_id])

    @property
    def image_url(self) -> str:
        """Where the page's picture comes from: the file itself if it is small."""
        pixels = max(self.width or 0, self.height or 0)
        if (self.size_bytes or 0) <= SMALL_BYTES and pixels <= SMALL_PIXELS:
            return self.url
        return reverse("chat:thumbnail", args=[self.attachment_id])

    @property
    def box(self) -> tuple[int, int] | None:
        """The size at which an image is shown, where its own is known: nothing jumps when it comes."""
        if not self.width or not self.height:
            return None
        scale = min(1, BOX[0] / self.width, BOX[1] / self.height)
        return max(1, round(self.width * scale)), max(1, round(self.height * scale))

    @property
    def kind(self) -> str:
        """How it is drawn: image, audio or file."""
        kind = self.mime_type.partition("/")[0]
        return kind if attachments.is_shown(self.mime_type) else "file"


@dataclass(frozen=True, slots=True)
class ShownBlock:
    """One block: `kind` chooses how it is drawn."""

    kind: str
    text: str = ""
    title: str = ""
    language: str = ""
    file: FileFacts | None = None
    url: str = ""

    @property
    def html(self) -> SafeString:
        """What was said, as HTML."""
        return markdown.render(self.text)

    @property
    def coloured(self) -> SafeString:
        """Code with its words coloured."""
        return markdown.colour(self.text, language=self.language)


@dataclass(frozen=True)
class ShownMessage:
    """A message with everything its template draws."""

    message: ChatMessage
    agent_name: str
    files: Mapping[str, FileFacts] = field(default_factory=dict)

    @property
    def speaker(self) -> str:
        """Who speaks, as people call them."""
        if self.message.source == ChatSource.AGENT:
            return self.agent_name
        if self.message.source == ChatSource.SYSTEM:
            return "Signalbox"
        return self.message.user_id.removeprefix("key:")

    @property
    def is_program(self) -> bool:
        """Say whether a program speaks for itself, under its key's name."""
        return self.message.source == ChatSource.USER and self.message.user_id.startswith("key:")

    @property
    def url(self) -> str:
        """The message's permalink."""
        return f"{reverse('chat:thread', args=[self.message.agent_id])}?message={self.message.pk}"

    @property
    def place(self) -> str:
        """The message's place in its thread."""
        return str(place_of(self.message))

    @property
    def clock(self) -> str:
        """The time of day, until the browser says it in the viewer's zone."""
        at = self.message.created_at
        return at.strftime("%H:%M") if isinstance(at, datetime) else ""

    @property
    def exact(self) -> str:
        """The instant in full."""
        at = self.message.created_at
        return exact(at) if isinstance(at, datetime) else str(at)

    @cached_property
    def blocks(self) -> list[ShownBlock]:
        """What the message holds, its files too where no block speaks of them."""
        content = self.message.content
        if not isinstance(content, list):
            return [ShownBlock("json", text=pretty_json(content), title="Content that is no list of blocks")]
        shown = [_block(block, self.files) for block in content]
        named = {block.file.attachment_id for block in shown if block.file}
        unnamed = [facts for pk, facts in self.files.items() if pk not in named]
        return [*shown, *(ShownBlock(facts.kind, file=facts) for facts in unnamed)]


def _block(block: Any, files: Mapping[str, FileFacts]) -> ShownBlock:
    if not isinstance(block, dict):
        return ShownBlock("json", text=pretty_json(block), title="A block that is none")
    facts = _file(block, files)
    if facts is not None:
        return ShownBlock(facts.kind, file=facts)
    return _words(block) or _elsewhere(block) or _unknown(block)


def _words(block: Mapping[str, Any]) -> ShownBlock | None:
    kind = block.get("type")
    text = next((v for name in ("text", "code", "content") if isinstance(v := block.get(name), str)), None)
    if text is None or kind not in {"text", "code"}:
        return None
    return ShownBlock(kind, text=text, language=str(block.get("language") or ""))


def _elsewhere(block: Mapping[str, Any]) -> ShownBlock | None:
    """Return a link: the page loads nothing from elsewhere, and whoever wants to see it goes there."""
    url = block.get("url")
    if not isinstance(url, str) or not url.startswith(("https://", "http://")):
        return None
    return ShownBlock("link", url=url, title=str(block.get("filename") or url))


def _unknown(block: Mapping[str, Any]) -> ShownBlock:
    if block.get("type") == "tool_result":
        return _tool_result(block)
    return ShownBlock("json", text=pretty_json(block), title=f"A block of kind {block.get('type')}")


def _tool_result(block: Mapping[str, Any]) -> ShownBlock:
    held = next((block[name] for name in ("output", "content", "result", "text") if block.get(name)), None)
    name = next((v for key in ("tool_name", "name", "tool") if isinstance(v := block.get(key), str)), "")
    failed = block.get("is_error") is True or block.get("success") is False
    title = f"{'Failed' if failed else 'Result'}{f' of {name}' if name else ''}"
    return ShownBlock("json", text=pretty_json(block if held is None else held), title=title)


def _file(block: Mapping[str, Any], files: Mapping[str, FileFacts]) -> FileFacts | None:
    """Return the file a block refers to, or None where it refers to none of ours."""
    pk = block.get("attachment_id")
    if not isinstance(pk, str) or not pk:
        match = _OWN_URL.fullmatch(url) if isinstance(url := block.get("url"), str) else None
        pk = match[1] if match else ""
    if not pk:
        return None
    row = files.get(pk)
    name = row.filename if row else str(block.get("filename") or "file")
    alt = block.get("alt") if isinstance(block.get("alt"), str) else None
    return FileFacts(
        pk,
        name,
        row.mime_type if row else str(block.get("mime_type") or attachments.UNKNOWN),
        row.size_bytes if row else _number(block.get("size_bytes")),
        _number(block.get("width")),
        _number(block.get("height")),
        alt or name,
    )


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and 0 < value < 10**9 else None


def shown(messages: Sequence[ChatMessage], agent_name: str) -> list[ShownMessage]:
    """Return messages ready to be drawn, with one query for the files of all."""
    files = _files_of(messages)
    return [ShownMessage(message, agent_name, files.get(message.pk, {})) for message in messages]


def _files_of(messages: Iterable[ChatMessage]) -> dict[str, dict[str, FileFacts]]:
    rows = ChatAttachment.objects.filter(message__in=[message.pk for message in messages])
    found: dict[str, dict[str, FileFacts]] = {}
    for pk, message_id, filename, mime_type, size in rows.order_by("created_at", "id").values_list(*_FACTS):
        found.setdefault(message_id, {})[pk] = FileFacts(pk, filename, mime_type, size, alt=filename)
    return found


def message_fragments(change: Change) -> Sequence[Fragment]:
    """Return what a changed message does to pages that show its thread."""
    quoted = _quoted(change.key)
    if change.op == "delete":
        return [Fragment(f'[data-message="{quoted}"]', "", "delete")]
    message = ChatMessage.objects.select_related("agent").filter(pk=change.key).first()
    if message is None:
        return []
    (one,) = shown([message], message.agent.name)
    html = render_to_string("chat/_message.html", {"shown": one})
    if change.op == "insert":
        return [Fragment(f'[data-thread="{_quoted(message.agent_id)}"]', html, "beforeend")]
    return [Fragment(f'[data-message="{quoted}"]', html)]


def _quoted(text: str) -> str:
    """Return a text as it stands inside a quoted CSS string."""
    return "".join(f"\\{ord(character):x} " if character in '"\\\n\r\f' else character for character in text)


# --- as files ---------------------------------------------------------------------------------------------


def markdown_lines(agent_name: str, messages: Iterable[ChatMessage]) -> Iterator[str]:
    """Yield a thread as a Markdown document, message by message."""
    yield f"# Chat with {agent_name}\n"
    for message in messages:
        one = ShownMessage(message, agent_name)
        yield f"\n## {one.speaker}, {one.exact}\n\n"
        yield "\n\n".join(_as_markdown(block) for block in one.blocks) + "\n"


def _as_markdown(block: ShownBlock) -> str:
    if block.kind == "text":
        return block.text
    if block.file is not None:
        return f"[{block.file.filename}]({block.file.url})"
    if block.kind == "link":
        return f"<{block.url}>"
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", block.text)), default=0))
    title = f"{block.title}:\n\n" if block.title else ""
    return f"{title}{fence}{block.language}\n{block.text}\n{fence}"
