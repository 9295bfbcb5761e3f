"""The content of a permission request that people judge: what its card shows, as digests and in the audit log."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from coordinator.models import PermissionRequest
from coordinator.policy.requests.approvals import (
    canonical_json_bytes,
    find_offered_rules,
    hash_json_parts,
    request_call_digest,
    request_context,
    request_subject,
    subject_field_values,
)
from coordinator.secrets.masking import mask_secrets_in_value

MAX_AUDITED_BYTES = 16 * 1024  # bytes of what was judged in one audit entry

# The columns of a request's context that its card shows next to the call, as does everything that shows the request.
# The digests of open cards take them in this order: a new one comes last, and asks people with an open page to reload.
SHOWN_OF_CONTEXT = ("folder", "host")


def judged_card_digest(request: PermissionRequest) -> str:
    """Return the SHA-256, in hexadecimal, of all that a card shows of `request` to be judged.

    A card's form sends it back, so that a decision counts only for the bytes that the person saw.
    """
    context = request_context(request)
    asker = (context.agent_id, context.requested_by, context.session_id) if context else None
    return hash_json_parts(
        "judged", asker, judged_request_field_values(request), request.justification, request.metadata
    )


def judged_content_for_audit(request: PermissionRequest) -> dict[str, Any]:
    """Return what a decision's audit entry says was judged, so that its proof shows it to who has only that file.

    `judged` holds what the card showed, secrets masked; where that is longer than MAX_AUDITED_BYTES it holds a note.
    `judged_sha256` is the SHA-256, in hexadecimal, of it as JSON with sorted keys, without spaces, in ASCII.
    """
    context, subject = request_context(request), request_subject(request)
    judged = {field.name: getattr(subject, field.name) for field in fields(subject)} | {
        "justification": request.justification,
        "agent_id": context.agent_id if context else None,
        "session_id": context.session_id if context else None,
        **card_context_fields(request),
    }
    judged = mask_secrets_in_value(judged)  # as the entry will be; other programs write rows with secrets
    packed = canonical_json_bytes(judged)
    shown_fields = (
        judged
        if len(packed) <= MAX_AUDITED_BYTES
        else {"too_long": f"{len(packed)} bytes; judged_sha256 names them"}
    )
    return {"judged": shown_fields, "judged_sha256": hashlib.sha256(packed).hexdigest()}


def card_grouping_digest(request: PermissionRequest) -> str:
    """Return what the requests on one card share: the same call in the same place, with the same offered rules."""
    return hash_json_parts("card", judged_request_field_values(request), find_offered_rules(request))


def judged_request_field_values(request: PermissionRequest) -> tuple[Any, ...]:
    card_fields = card_context_fields(request)
    return (
        request_call_digest(request),
        *subject_field_values(request_subject(request)),
        *card_fields.values(),
    )


def card_context_fields(request: PermissionRequest) -> dict[str, Any]:
    """Return SHOWN_OF_CONTEXT by name, in its order; a row of another program has none of it."""
    context = request_context(request)
    return {name: getattr(context, name, None) for name in SHOWN_OF_CONTEXT}


def group_requests_by_card(rows: Iterable[PermissionRequest]) -> list[list[PermissionRequest]]:
    """Return `rows` with those that share a card together, in the order they first appeared."""
    requests_by_card: dict[str, list[PermissionRequest]] = {}
    for row in rows:
        requests_by_card.setdefault(card_grouping_digest(row), []).append(row)
    return list(requests_by_card.values())
