"""A set of requests that a person chose, as the one question before its verdict lists them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from coordinator.models import PermissionRequest
from coordinator.policy import marks
from coordinator.sessions import titles
from dashboard.approvals.cards import CardMember, session_of
from dashboard.approvals.rights import Rights

CHANGED = "It changed after you chose it. Look at it again."
GONE = "It does not exist any more."


@dataclass(frozen=True, slots=True)
class ChosenRequest:
    """One of the set: `seen` is the digest of what the page showed, `problem` says why it will not be decided."""

    request_id: str
    seen: str
    member: CardMember | None
    reasons: Sequence[str] = ()
    problem: str = ""


def chosen_requests(chosen: Mapping[str, str], now: datetime, rights: Rights) -> list[ChosenRequest]:
    """Return what was chosen, as it stands, in the order in which it was shown."""
    found = PermissionRequest.objects.with_triage().filter(request_id__in=list(chosen))
    rows, kept = {row.request_id: row for row in found}, marks.saved()
    named = titles.of(session_of(row) for row in rows.values())
    listed = []
    for name, seen in chosen.items():
        row = rows.get(name)
        if row is None:
            listed.append(ChosenRequest(name, seen, None, problem=GONE))
            continue
        member = CardMember(row, now, named.get(session_of(row) or "", ""), rights)
        listed.append(ChosenRequest(name, seen, member, marks.reasons_of(row, kept), _problem(member, seen)))
    return listed


def _problem(member: CardMember, seen: str) -> str:
    """Return why a request is not decided with the others; nothing where it is."""
    if not member.standing.waiting:
        return member.story[:1].upper() + member.story[1:]
    return member.why_not or (CHANGED if seen != member.judged else "")
