"""Transcripts that a machine of agents sends (`signalbox import`), which become sessions of its key's agent."""

from __future__ import annotations

from typing import Annotated

from django.http import HttpRequest
from django.utils import timezone
from ninja import Field, Path, Query, Schema

from coordinator.actions.people.key_quotas import KeyQuotas
from coordinator.api.auth import require_scopes
from coordinator.api.router import Router
from coordinator.api.shared_types import Text, calling_key, error_responses
from coordinator.identity.scopes import AGENT_SCOPES
from coordinator.importing import uploads
from coordinator.lib.body_limits import KEY_UPLOAD, limit_body

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


@router.post(
    "/transcripts/{agent}",
    auth=require_scopes(*AGENT_SCOPES),
    response={200: ReadTranscriptsOut, **error_responses(413)},
    operation_id="import_transcripts",
    summary="Import transcripts of an agent",
    openapi_extra={"requestBody": ARCHIVE},
)
@limit_body(KEY_UPLOAD)
def import_transcripts(
    request: HttpRequest, agent: Path[Annotated[str, Field(max_length=50)]], sent_from: Query[SentFrom]
) -> dict[str, object]:
    """The body is a zip archive with the agent's files, named from its home folder on. What is known is not added."""
    key, now = calling_key(request), timezone.now()
    caller = f"key:{key.id}"
    quotas = KeyQuotas()
    quotas.load_key_sums([caller], now)
    if refusal := quotas.find_quota_refusal(caller, now):
        raise refusal
    return uploads.read_uploaded_transcripts(
        request.body, agent=agent, hostname=sent_from.host.strip() or None, key_id=key.id
    )
