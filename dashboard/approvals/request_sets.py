"""Requests that a person chose, as the confirmation page lists them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from coordinator.models import PermissionRequest
from dashboard.approvals.cards import ApprovalCard, CardMember, build_approval_cards
from dashboard.approvals.rights import DecisionRights

CHANGED = "It changed after you chose it. Look at it again."
GONE = "It no longer exists."
QUESTION = "It is a question or a plan. Answer it on its own card."


@dataclass(frozen=True, slots=True)
class ChosenRequest:
    """One chosen request.

    `seen` is the digest of what the page showed. `problem` is why it will not be decided, or empty. `card` is
    None if the request no longer exists.
    """

    request_id: str
    seen: str
    card: ApprovalCard | None
    problem: str

    @property
    def first_member(self) -> CardMember | None:
        return self.card.members[0] if self.card else None

    @property
    def reasons_of_danger_marks(self) -> Sequence[str]:
        return self.card.glance.reasons if self.card and self.card.glance else ()

    @property
    def danger_reasons(self) -> frozenset[str]:
        return self.card.glance.danger_marks if self.card and self.card.glance else frozenset()


def load_chosen_requests_with_state(
    chosen: Mapping[str, str], now: datetime, rights: DecisionRights, verdict: str
) -> list[ChosenRequest]:
    """Return the chosen requests with their current state, in the order of `chosen`."""
    rows = PermissionRequest.objects.with_context_and_assignment().filter(request_id__in=list(chosen))
    cards = {
        card.first_request.request_id: card
        for card in build_approval_cards([[row] for row in rows], now, rights=rights)
    }
    listed = []
    for name, seen_digest in chosen.items():
        card = cards.get(name)
        problem = explain_undecidable_request(card.members[0], seen_digest) if card else GONE
        if card and not problem and verdict == "approved" and card.question is not None:
            problem = QUESTION
        listed.append(ChosenRequest(name, seen_digest, card, problem))
    return listed


def explain_undecidable_request(member: CardMember, seen_version: str) -> str:
    """Return why a request cannot be decided with the others; empty if it can."""
    if not member.request_state.waiting:
        return member.state_description[:1].upper() + member.state_description[1:]
    return member.viewer_ineligibility_reason or (
        CHANGED if seen_version != member.displayed_request_digest else ""
    )
