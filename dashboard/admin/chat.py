"""Chat messages, which can be deleted but not edited, and attachments, read-only."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from coordinator.actions.chat import chat
from coordinator.identity.actors import Actor
from coordinator.models import ChatAttachment, ChatMessage, StoredFile
from coordinator.models.chat import ChatSource, FilePlace, StorageType
from coordinator.secrets.masking import mask_secrets_in_value
from dashboard.admin import columns
from dashboard.admin.filters import build_choice_filter_class, build_period_filter_class
from dashboard.admin.options import DeleteOnlyAdmin, ViewOnlyAdmin
from dashboard.templatetags.signalbox import pretty_json

SHOWN = 120


@admin.display(description="content")
def message_beginning_cell(row: ChatMessage) -> Any:
    """Return the first text of a message, or the beginning of its content as JSON."""
    content = mask_secrets_in_value(row.content)
    blocks = content if isinstance(content, list) else []
    texts = [
        block["text"] for block in blocks if isinstance(block, dict) and isinstance(block.get("text"), str)
    ]
    return (texts[0] if texts else pretty_json(content))[:SHOWN]


@admin.register(ChatMessage)
class ChatMessageAdmin(DeleteOnlyAdmin):
    """Chat messages.

    They cannot be added or edited here, because a message must come from its real sender.
    """

    list_display = (
        columns.time_column("created_at"),
        columns.reference_column("agent_id", "coordinator_agent"),
        columns.text_column("user_id", label="user"),
        columns.state_column("source"),
        message_beginning_cell,
        columns.code_column("id"),
    )
    list_filter = (
        build_choice_filter_class("source", ChatSource.values),
        build_period_filter_class("created_at"),
    )
    list_without = ("metadata",)
    search_fields = ("id__exact", "agent__id", "user_id", "content")
    ordering = ("-created_at",)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return columns.build_cells_for_model(ChatMessage)

    def delete_row(self, row: Any, actor: Actor) -> None:
        chat.remove_chat_message(row.pk, actor=actor)

    def count_dependent_rows(self, rows: list[Any]) -> dict[str, int]:
        return {"attachments": ChatAttachment.objects.filter(message__in=[row.pk for row in rows]).count()}


@admin.register(ChatAttachment)
class ChatAttachmentAdmin(ViewOnlyAdmin):
    """Attachments, read-only.

    They are deleted with their message. Their content is never read for these pages.
    """

    list_display = (
        columns.text_column("filename"),
        columns.text_column("mime_type", label="type"),
        columns.size_column("size_bytes", label="size"),
        columns.state_column("storage_type"),
        columns.reference_column("message_id", "coordinator_chatmessage"),
        columns.time_column("created_at"),
    )
    list_filter = (
        build_choice_filter_class("storage_type", StorageType.values),
        build_period_filter_class("created_at"),
    )
    never_read = ("inline_data",)
    search_fields = ("id__exact", "message__id__exact", "filename", "mime_type")
    ordering = ("-created_at",)


@admin.register(StoredFile)
class StoredFileAdmin(ViewOnlyAdmin):
    """Where the file of each attachment is stored. The command `move_attachments` moves files elsewhere."""

    list_display = (
        columns.reference_column("attachment_id", "coordinator_chatattachment"),
        columns.state_column("place"),
        columns.size_column("size_bytes", label="size"),
        columns.text_column("proven", label="type"),
        columns.code_column("sha256"),
    )
    list_filter = (build_choice_filter_class("place", FilePlace.values),)
    never_read = ("pieces",)
    search_fields = ("attachment__id__exact", "sha256__exact")
    ordering = ("attachment_id",)
