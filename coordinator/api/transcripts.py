"""Transcripts sent by agents' machines (`signalbox import`), which become sessions of the key's agent."""

from __future__ import annotations

from typing import Annotated

from django.db import transaction
from django.http import HttpRequest
from django.utils import timezone
from ninja import Field, Path, Query, Schema

from coordinator.actions.people.key_quotas import KeyQuotas
from coordinator.actions.sessions import transcript_senders
from coordinator.actions.sessions.transcript_senders import ImportStatus, SenderName, UnreadPart
from coordinator.api.auth import build_scoped_key_auth
from coordinator.api.router import Router
from coordinator.api.shared_types import Ok, Text, error_responses, get_request_key_identity
from coordinator.identity.scopes import AGENT_SCOPES
from coordinator.importing import uploads
from coordinator.lib.body_limits import KEY_UPLOAD, declare_request_body_allowance

router = Router(tags=["Hooks"])
ARCHIVE = {
    "content": {"application/zip": {"schema": {"type": "string", "format": "binary"}}},
    "required": True,
}


class ReadTranscriptsOut(Schema):
    """What came of the transcripts. `problems` name what could not be read, or was refused, and where."""

    files: int
    events_added: int
    events_known: int
    sessions_made: int
    sessions_added_to: int
    problems: list[str]


class SentFrom(Schema):
    """Where they come from."""

    host: Annotated[Text, Field(max_length=255, description="The machine's name")] = ""


Count = Annotated[int, Field(ge=0, le=1_000_000_000)]


class UnsentFileIn(Schema):
    """A transcript that could not be sent, or was refused, and why."""

    file: Annotated[Text, Field(max_length=4_096, description="Its path from the agent's home folder on")]
    reason: Annotated[Text, Field(max_length=1_000)]


class ImportStatusIn(Schema):
    """One agent's transcripts on the machine."""

    agent: Annotated[Text, Field(min_length=1, max_length=50)]
    files: Annotated[Count, Field(description="How many there are")]
    waiting: Annotated[Count, Field(description="How many of them have not been sent yet")]
    problems: Annotated[list[UnsentFileIn], Field(max_length=500)] = []


class ImportStatusesIn(Schema):
    """How a machine's import stands. It replaces what the machine reported before."""

    host: Annotated[Text, Field(max_length=255, description="The machine's name")] = ""
    is_watching: Annotated[bool, Field(description="Whether it goes on sending what grows")] = False
    agents: Annotated[list[ImportStatusIn], Field(max_length=50)]


@router.post(
    "/transcripts",
    auth=build_scoped_key_auth(*AGENT_SCOPES),
    response={200: Ok, **error_responses(400)},
    operation_id="report_import_status",
    summary="Report how the import of a machine's transcripts stands",
)
def report_import_status(request: HttpRequest, body: ImportStatusesIn) -> dict[str, bool]:
    """Keep it for the page that lists the machines. `signalbox import` reports after it has sent, and each minute."""
    key, now = get_request_key_identity(request), timezone.now()
    with transaction.atomic():
        for status in body.agents:
            transcript_senders.record_import_status(
                SenderName(body.host.strip(), status.agent, key.name),
                ImportStatus(
                    status.files,
                    status.waiting,
                    body.is_watching,
                    [UnreadPart(problem.file, problem.reason) for problem in status.problems],
                ),
                now=now,
            )
    return {"ok": True}


@router.post(
    "/transcripts/{agent}",
    auth=build_scoped_key_auth(*AGENT_SCOPES),
    response={200: ReadTranscriptsOut, **error_responses(413)},
    operation_id="import_transcripts",
    summary="Import transcripts of an agent",
    openapi_extra={"requestBody": ARCHIVE},
)
@declare_request_body_allowance(KEY_UPLOAD)
def import_transcripts(
    request: HttpRequest, agent: Path[Annotated[str, Field(max_length=50)]], sent_from: Query[SentFrom]
) -> dict[str, object]:
    """The body is a zip archive with the agent's files, named from its home folder on. What is known is not added."""
    key, now = get_request_key_identity(request), timezone.now()
    caller = f"key:{key.id}"
    quotas = KeyQuotas()
    quotas.cache_stored_byte_sums([caller], now)
    if refusal := quotas.find_storage_quota_error(caller, now):
        raise refusal
    return uploads.read_uploaded_transcripts(
        request.body, agent=agent, hostname=sent_from.host.strip() or None, key_id=key.id
    )
