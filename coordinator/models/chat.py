"""Chat messages of people and agents, and the files they attach."""

from __future__ import annotations

from django.db import models

from coordinator.models.agents import Agent
from coordinator.models.fields import JsonTextField, MsField


class ChatSource(models.TextChoices):
    """Who speaks. The database refuses any other word."""

    USER = "user"
    AGENT = "agent"
    SYSTEM = "system"


class StorageType(models.TextChoices):
    """Where an attachment's bytes are: in the row up to 64 KiB, else in a file. The database refuses others."""

    INLINE = "inline"
    DISK = "disk"


class FilePlace(models.TextChoices):
    """Where an attached file is stored (chat/stores). The database refuses any other word."""

    FOLDER = "folder"
    S3 = "s3"


class ChatMessage(models.Model):
    """One message of a person's thread with an agent; `content` is a list of content blocks."""

    Source = ChatSource

    id = models.TextField(primary_key=True)
    # No ON DELETE in the document: an agent with messages cannot be deleted before they are.
    agent = models.ForeignKey(Agent, models.DO_NOTHING, db_index=False, related_name="chat_messages")
    user_id = models.TextField(default="default", db_default="default")
    source = models.TextField()
    content = JsonTextField()
    metadata = JsonTextField(null=True, blank=True)
    created_at = MsField()

    class Meta:
        db_table = "chat_messages"

    def __str__(self) -> str:
        return str(self.id)


class ChatBranch(models.Model):
    """A message's position among branches: which one it answers, and as which of the answers, from 0.

    Only of messages that came with another program's database: here a thread has no branches.
    """

    message = models.OneToOneField(
        ChatMessage,
        models.DO_NOTHING,  # the database cascades
        primary_key=True,
        db_column="message_id",
        related_name="branch",
    )
    parent_id = models.TextField(null=True, blank=True)
    branch_index = models.BigIntegerField(default=0, db_default=0)

    class Meta:
        verbose_name_plural = "chat branches"
        db_table = "chat_branches"

    def __str__(self) -> str:
        return f"branch {self.branch_index} of {self.parent_id}"


class ChatAttachment(models.Model):
    """One file of a message: its bytes in `inline_data` or in the file that `disk_path` names."""

    StorageType = StorageType

    id = models.TextField(primary_key=True)
    message = models.ForeignKey(ChatMessage, models.DO_NOTHING, db_index=False, related_name="attachments")
    filename = models.TextField()
    mime_type = models.TextField()
    size_bytes = models.BigIntegerField()
    storage_type = models.TextField()
    inline_data = models.BinaryField(null=True, blank=True)
    disk_path = models.TextField(null=True, blank=True)
    created_at = MsField()

    class Meta:
        db_table = "chat_attachments"

    def __str__(self) -> str:
        return self.filename


class StoredFile(models.Model):
    """Where the file of a `disk_path` is stored, and by what its bytes are known again (chat/checked.py).

    Files that an older version or another program stored have none until they are checked.
    """

    Place = FilePlace

    attachment = models.OneToOneField(
        ChatAttachment,
        models.DO_NOTHING,  # the database cascades
        primary_key=True,
        db_column="attachment_id",
        related_name="stored",
    )
    place = models.TextField()
    size_bytes = models.BigIntegerField()
    sha256 = models.TextField()
    pieces = models.BinaryField()  # the SHA-256 of each 256 KiB, one after the other
    proven = models.TextField(default="", db_default="")  # the type that its first bytes prove, if any

    class Meta:
        db_table = "stored_files"

    def __str__(self) -> str:
        return f"{self.pk} in {self.place}"


class ReadMark(models.Model):
    """How far a person has read an agent's thread: the place of the last message they saw."""

    id = models.BigAutoField(primary_key=True)
    person = models.TextField()
    agent_id = models.TextField()
    read_at = MsField()
    message_id = models.TextField(default="", db_default="")

    class Meta:
        db_table = "read_marks"
        constraints = [models.UniqueConstraint(fields=["person", "agent_id"], name="sbx_read_marks_once")]

    def __str__(self) -> str:
        return f"{self.person} in {self.agent_id}"
