"""Sending, marking as read and deletion of chat messages, including their attachments.

The message never names its sender: endpoints take it from the session or the key (`build_person_speaker`,
`build_api_key_speaker`).
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, BinaryIO

from django.contrib.auth.models import AnonymousUser, User
from django.db import IntegrityError, transaction
from django.utils import timezone

from coordinator.actions.audit import audit
from coordinator.actions.chat import attachments, chat_search
from coordinator.actions.chat.attachments import PreparedFile
from coordinator.chat import content as chat_content
from coordinator.chat.content import Block
from coordinator.chat.reading import (
    MILLISECOND,
    READ_BY_AGENT,
    SENT_TO_AGENT,
    MessagePosition,
    message_position,
)
from coordinator.errors import BadRequest, Conflict, Forbidden, NotFound
from coordinator.identity.actors import Actor, person_actor
from coordinator.identity.keys import KeyIdentity
from coordinator.models import Agent, ChatAttachment, ChatMessage, ReadMark
from coordinator.models.chat import ChatSource
from coordinator.secrets.masking import mask_secrets_in_value

_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
# A message of another program that is dated further ahead than this does not shift ours.
FURTHEST_AHEAD = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class ChatSpeaker:
    """Who says something: as which source, under which name, and who that is for the audit log."""

    source: str
    user_id: str
    actor: Actor


@dataclass(frozen=True, slots=True)
class ChatUpload:
    """A file that comes with a message."""

    file: BinaryIO
    filename: str
    mime_type: str


def build_person_speaker(user: User | AnonymousUser) -> ChatSpeaker:
    """Return a signed-in person as who speaks."""
    return ChatSpeaker(ChatSource.USER, user.get_username(), person_actor(user))


def build_api_key_speaker(caller: KeyIdentity, agent_id: str, *, to: str = "default") -> ChatSpeaker:
    """Return the speaker for a key: an agent's key speaks as that agent, only in its own thread; any other as itself.

    `to` names the person that an agent answers. Raises Forbidden.
    """
    if not caller.is_bound_to_agents:
        return ChatSpeaker(ChatSource.USER, f"key:{caller.name}", caller.caller_actor)
    if not caller.can_speak_for_agent(agent_id):
        raise Forbidden(f"This key is bound to {caller.bound_agents_label} and may not write to {agent_id}.")
    return ChatSpeaker(ChatSource.AGENT, to, caller.caller_actor)


def submit_chat_message(
    agent_id: str,
    content: Any,
    *,
    speaker: ChatSpeaker,
    files: Sequence[ChatUpload] = (),
    message_id: str | None = None,
    metadata: Any = None,
    now: datetime | None = None,
) -> ChatMessage:
    """Say something to an agent, or as one, and return the message.

    Files come in `files` or as data URLs in the blocks; both are kept as attachments, and the blocks refer to
    them. Raises BadRequest for what is no message, NotFound for no such agent, Conflict for an id that is taken
    or an agent that is switched off.
    """
    moment = now or timezone.now()
    if message_id is not None and not _ID.fullmatch(message_id):
        raise BadRequest("A message's id must have 1 to 128 letters, digits, dots, hyphens or underscores.")
    blocks = chat_content.validate_content_blocks(content, files=len(files))
    if speaker.source == ChatSource.AGENT:  # what people say, the agent must read as it was said
        blocks, metadata = mask_message_blocks(blocks), mask_secrets_in_value(metadata)
    message = ChatMessage(
        id=message_id or f"msg_{uuid.uuid4().hex}",
        agent_id=agent_id,
        user_id=speaker.user_id,
        source=speaker.source,
        metadata=chat_content.validate_message_metadata(metadata),
    )
    require_agent_switched_on(agent_id, speaker)  # before any file is written
    with store_message_files_during_block(blocks, files, moment) as (message.content, prepared):
        chat_content.reject_oversized_content(message.content)
        write_chat_message(message, prepared, speaker, moment)
    return message


def mask_message_blocks(blocks: Sequence[Block]) -> list[Block]:
    """Return blocks without secrets; one that carries a file as it is: random bytes are no text."""
    return [
        block if chat_content.extract_embedded_file(number, block) else mask_secrets_in_value(block)
        for number, block in enumerate(blocks)
    ]


@contextmanager
def store_message_files_during_block(
    blocks: Sequence[Block], files: Sequence[ChatUpload], now: datetime
) -> Iterator[tuple[list[Block], list[PreparedFile]]]:
    """Keep the files and give the blocks that refer to them; the files go again where the message fails."""
    prepared: list[PreparedFile] = []
    try:
        attachment_blocks = [
            store_embedded_file_of_block(number, block, prepared, now) for number, block in enumerate(blocks)
        ]
        for upload in files:
            attachment = attachments.store_file_as_prepared_attachment(
                upload.file, filename=upload.filename, declared=upload.mime_type, now=now
            )
            prepared.append(attachment)
            kind = attachment.row.mime_type.partition("/")[0]
            kind = (
                kind if kind in {"image", "audio"} and attachment.row.mime_type != "image/svg+xml" else "file"
            )
            attachment_blocks.append(chat_content.build_file_block({"type": kind}, attachment.facts))
        yield attachment_blocks, prepared
    except BaseException:
        for attachment in prepared:
            attachment.discard_prepared_file()
        raise


def store_embedded_file_of_block(
    number: int, block: Block, prepared: list[PreparedFile], now: datetime
) -> Block:
    """Return the block; where it carries a file, keep that and return a block that refers to it."""
    embedded_file = chat_content.extract_embedded_file(number, block)
    if embedded_file is None:
        return block
    attachment = attachments.store_bytes_as_prepared_attachment(
        embedded_file.data, filename=embedded_file.filename, declared=embedded_file.mime_type, now=now
    )
    prepared.append(attachment)
    return chat_content.build_file_block(embedded_file.block, attachment.facts)


def require_agent_switched_on(agent_id: str, speaker: ChatSpeaker) -> None:
    enabled = Agent.objects.filter(pk=agent_id).values_list("enabled", flat=True).first()
    if enabled is None:
        raise NotFound(f"There is no agent {agent_id!r}.")
    if not enabled and speaker.source != ChatSource.AGENT:
        raise Conflict(f"{agent_id} is switched off. Nothing was sent. Switch the agent on first.")


def write_chat_message(
    message: ChatMessage, prepared: Iterable[PreparedFile], speaker: ChatSpeaker, now: datetime
) -> None:
    """Write the message after all others of its thread, and its files' rows.

    The agent's row is locked meanwhile, so positions in a thread follow the order of commits: a client that waits for
    what comes after a position never misses a message that was begun earlier and committed later.
    """
    try:
        with transaction.atomic():
            Agent.objects.select_for_update(no_key=True).filter(pk=message.agent_id).first()
            require_agent_switched_on(message.agent_id, speaker)
            message.created_at = next_message_time(message.agent_id, now)
            message.save(force_insert=True)
            attachments.save_attachment_rows(prepared, message)
            chat_search.index_chat_body(message)
    except IntegrityError:
        raise Conflict(f"A message {message.pk!r} already exists.") from None


def next_message_time(agent_id: str, now: datetime) -> datetime:
    at = now.replace(microsecond=now.microsecond // 1000 * 1000)
    thread = ChatMessage.objects.filter(agent=agent_id, created_at__lt=at + FURTHEST_AHEAD)
    last = thread.order_by("-created_at").values_list("created_at", flat=True).first()
    return max(at, last + MILLISECOND) if isinstance(last, datetime) else at


def mark_thread_read(person_name: str, agent_id: str, position: MessagePosition) -> None:
    """Note that a person has read an agent's thread up to `place`; marks only move forward."""
    mark = ReadMark(
        person=person_name, agent_id=agent_id, read_at=position.at, message_id=position.message_id or ""
    )
    with transaction.atomic():
        read_mark = ReadMark.objects.select_for_update().filter(person=person_name, agent_id=agent_id).first()
        if read_mark is not None and (read_mark.read_at, read_mark.message_id) >= (
            mark.read_at,
            mark.message_id,
        ):
            return
        ReadMark.objects.update_or_create(
            person=person_name,
            agent_id=agent_id,
            defaults={"read_at": mark.read_at, "message_id": mark.message_id},
        )


def mark_messages_sent_to_agent(agent_id: str, position: MessagePosition) -> None:
    """Note that the agent's own program was sent its messages up to `position`."""
    advance_agent_chat_position(SENT_TO_AGENT, agent_id, position)


def mark_messages_read_by_agent(agent_id: str, position: MessagePosition) -> None:
    """Note that the agent's own program asks for what follows `position`, but never more than there is."""
    advance_agent_chat_position(READ_BY_AGENT, agent_id, position)


def advance_agent_chat_position(mark_name: str, agent_id: str, position: MessagePosition) -> None:
    newest = ChatMessage.objects.filter(agent=agent_id).order_by("-created_at", "-id").first()
    if newest is None:
        return
    end = message_position(newest)
    if (position.at, position.message_id or "") > (end.at, end.message_id or ""):
        position = end
    mark = ReadMark.objects.filter(person=mark_name, agent_id=agent_id).first()
    # Most waits bring nothing new: they write nothing.
    if mark is None or (mark.read_at, mark.message_id) < (position.at, position.message_id or ""):
        mark_thread_read(mark_name, agent_id, position)


def remove_chat_message(
    message_id: str, *, actor: Actor, reason: str | None = None, now: datetime | None = None
) -> ChatMessage:
    """Delete one message with its attachments and return it. The audit row does not repeat what it said.

    Raises NotFound.
    """
    with transaction.atomic():
        row = ChatMessage.objects.select_for_update().filter(pk=message_id).first()
        if row is None:
            raise NotFound(f"There is no message {message_id!r}.")
        purged = purge_messages_and_count_attachments(ChatMessage.objects.filter(pk=message_id))
        audit.record_audit_entry(
            "CHAT_MESSAGE_DELETED",
            actor=actor,
            target=message_id,
            result="success",
            reason=reason,
            metadata={
                "before": {"agent_id": row.agent_id, "user_id": row.user_id, "source": row.source},
                "taken_along": {"chat attachments": purged},
            },
            now=now,
        )
    return row


def clear_chat_thread(
    agent_id: str, *, actor: Actor, reason: str | None = None, now: datetime | None = None
) -> int:
    """Delete everything that was said with an agent and return how many messages. Raises NotFound."""
    with transaction.atomic():
        if not Agent.objects.select_for_update(no_key=True).filter(pk=agent_id).exists():
            raise NotFound(f"There is no agent {agent_id!r}.")
        rows = ChatMessage.objects.filter(agent=agent_id)
        messages = rows.count()
        purged = purge_messages_and_count_attachments(rows)
        ReadMark.objects.filter(agent_id=agent_id).delete()
        audit.record_audit_entry(
            "CHAT_DELETED",
            actor=actor,
            target=agent_id,
            result="success",
            reason=reason,
            metadata={"taken_along": {"chat messages": messages, "chat attachments": purged}},
            now=now,
        )
    return messages


def purge_messages_and_count_attachments(messages: Any) -> int:
    """Delete these messages (a queryset), their words in the index and their files; return how many attachments."""
    deleted_files = attachments.delete_attachments(ChatAttachment.objects.filter(message__in=messages))
    chat_search.remove_from_chat_index(messages)
    messages.delete()
    return deleted_files
