"""What a card of the inbox shows: identical requests together, each with where it stands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property

from django.db.models import Q

from coordinator import approvals
from coordinator.actions import plugin_permissions
from coordinator.approvals import Standing
from coordinator.models import PermissionRequest, PermissionVote
from dashboard.inputs import Part, parts_of
from dashboard.templatetags.approvals import reveals
from dashboard.tool_call_edits import ToolCallEdit, edit_of

MOST_CARDS = 60  # a page that a phone can hold; the rest follows as these are decided


@dataclass(frozen=True)
class Member:
    """One request of a card: who asks, and where it stands."""

    row: PermissionRequest
    now: datetime

    @cached_property
    def standing(self) -> Standing:
        """Return where the request stands."""
        return approvals.standing(self.row, self.now)

    @property
    def story(self) -> str:
        """Return one sentence that says how it ended."""
        return approvals.story(self.row, self.now)

    @property
    def who(self) -> str:
        """Return the most telling name of the asker: the agent, else the key or person, else the plugin."""
        context = approvals.context_of(self.row)
        return (context and (context.agent_id or context.requested_by)) or self.row.plugin_id

    @property
    def gist(self) -> str:
        """Return what is asked for in as few words as a list has room for: a command, or the target."""
        tool_input = approvals.subject_of(self.row).tool_input
        command = tool_input.get("command") if isinstance(tool_input, dict) else None
        return command if isinstance(command, str) and command else self.row.target_resource or ""

    @property
    def waited(self) -> timedelta | None:
        """Return how long its asker waited for a person's verdict."""
        return approvals.waited(self.row)

    @property
    def needed(self) -> int:
        """Return how many people must approve."""
        return approvals.needed(self.row)

    @cached_property
    def votes(self) -> list[PermissionVote]:
        """Return the approvals that are in, where it takes several people."""
        return list(self.row.votes.order_by("id")) if self.needed > 1 else []


@dataclass(frozen=True)
class Card:
    """Requests that ask for the same thing, judged together."""

    members: Sequence[Member]
    grantable: bool = False  # whether the plugin could be given this permission for good

    @property
    def first(self) -> PermissionRequest:
        """Return the request that the card's words are taken from."""
        return self.members[0].row

    @cached_property
    def key(self) -> str:
        """Return the card's name on the page."""
        return approvals.subject_of(self.first).key[:16]

    @cached_property
    def waiting(self) -> list[Member]:
        """Return those that can be decided."""
        return [member for member in self.members if member.standing.waiting]

    @cached_property
    def parts(self) -> list[Part]:
        """Return what is to be judged, in full."""
        return parts_of(approvals.subject_of(self.first).tool_input)

    @cached_property
    def edit(self) -> ToolCallEdit | None:
        """Return what a person may add to an approval of the card, where its asker will hear of it."""
        return edit_of(self.first)

    @cached_property
    def deceives(self) -> bool:
        """Say whether anything that is asked for holds characters that an eye misses."""
        texts = [self.first.target_resource or "", *self.justifications]
        for part in self.parts:
            texts += [part.label, part.text, *(line.text for line in part.lines)]
        return any(reveals(text) for text in texts)

    @property
    def revocable(self) -> bool:
        """Say whether there is an approval here that somebody could take back."""
        return any(approvals.can_revoke(member.row, member.now) for member in self.members)

    @property
    def justifications(self) -> list[str]:
        """Return the different reasons the askers gave."""
        return list(dict.fromkeys(member.row.justification for member in self.members))


def inbox(now: datetime, shown: Iterable[str] = ()) -> tuple[list[Card], int]:
    """Return the cards of what waits, and how many requests wait beyond them.

    `shown` are the ids already on the page: those that were closed meanwhile stay, and say so in place.
    """
    waiting = PermissionRequest.objects.waiting(now).with_context().order_by("id")
    rows = {row.pk: row for row in waiting[: MOST_CARDS * 2]}
    rows |= {
        row.pk: row for row in PermissionRequest.objects.with_context().filter(Q(request_id__in=list(shown)))
    }
    groups = approvals.groups(rows[pk] for pk in sorted(rows))
    cards = cards_of(groups[:MOST_CARDS], now)
    return cards, waiting.count() - sum(len(card.waiting) for card in cards)


def cards_of(groups: Iterable[Sequence[PermissionRequest]], now: datetime) -> list[Card]:
    """Return one card for each group of requests that ask for the same thing."""
    groups = list(groups)
    wishes = {(group[0].plugin_id, group[0].permission_type) for group in groups}
    grantable = plugin_permissions.grantable(wishes)
    return [
        Card([Member(row, now) for row in group], (group[0].plugin_id, group[0].permission_type) in grantable)
        for group in groups
    ]


def card_of(rows: Iterable[PermissionRequest], now: datetime) -> Card:
    """Return one card for requests that ask for the same thing."""
    [card] = cards_of([list(rows)], now)
    return card
