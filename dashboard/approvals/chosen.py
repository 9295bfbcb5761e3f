"""A set of requests that a person chose, as the one question before its verdict lists them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from coordinator.models import PermissionRequest
from dashboard.approvals.cards import Card, CardMember, cards_of
from dashboard.approvals.rights import Rights

CHANGED = "It changed after you chose it. Look at it again."
GONE = "It no longer exists."


@dataclass(frozen=True, slots=True)
class ChosenRequest:
    """One of the set: `seen` is the digest of what the page showed, `problem` says why it will not be decided.

    `card` draws what is asked in full; None where it does not exist any more.
    """

    request_id: str
    seen: str
    card: Card | None
    problem: str

    @property
    def member(self) -> CardMember | None:
        return self.card.members[0] if self.card else None

    @property
    def reasons(self) -> Sequence[str]:
        return self.card.glance.reasons if self.card and self.card.glance else ()

    @property
    def dangers(self) -> frozenset[str]:
        return self.card.glance.dangers if self.card and self.card.glance else frozenset()


def chosen_requests(chosen: Mapping[str, str], now: datetime, rights: Rights) -> list[ChosenRequest]:
    """Return what was chosen, as it stands, in the order in which it was shown."""
    rows = PermissionRequest.objects.with_triage().filter(request_id__in=list(chosen))
    cards = {card.first.request_id: card for card in cards_of([[row] for row in rows], now, rights=rights)}
    listed = []
    for name, seen in chosen.items():
        card = cards.get(name)
        problem = _problem(card.members[0], seen) if card else GONE
        listed.append(ChosenRequest(name, seen, card, problem))
    return listed


def _problem(member: CardMember, seen: str) -> str:
    """Return why a request is not decided with the others; nothing where it is."""
    if not member.standing.waiting:
        return member.story[:1].upper() + member.story[1:]
    return member.why_not or (CHANGED if seen != member.judged else "")
