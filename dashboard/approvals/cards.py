"""What a card of the inbox shows: identical requests together, each with where it stands."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from types import MappingProxyType
from typing import Any

from django.urls import NoReverseMatch, reverse

from coordinator.actions import plugin_permissions
from coordinator.actions.approvals.triage import MOST_ARRANGED
from coordinator.lib.invisible import holds_invisible
from coordinator.lib.lookalikes import holds_lookalikes
from coordinator.models import PermissionRequest, PermissionVote
from coordinator.policy import approvals, brakes, narrowest
from coordinator.policy.access_requests import wanted_access_of
from coordinator.policy.approvals import RequestState, Scope
from coordinator.policy.coverage import requester_of
from coordinator.policy.gateway_requests import (
    GatewayRequest,
    folder_names,
    gateway_gist_of,
    gateway_request_of,
)
from coordinator.policy.judged import group_key, judged_digest
from coordinator.secrets.running import runs_hidden
from coordinator.sessions import titles
from dashboard.approvals.edits import ToolCallEdit, edit_of
from dashboard.approvals.glance import Glance, glances
from dashboard.approvals.rights import Rights
from dashboard.approvals.verdicts import MOST_ON_A_CARD
from dashboard.looks.inputs import judged_parts
from dashboard.looks.parts import Part

MOST_UNSHOWN = 200  # characters of a call that a list of chosen requests may fold away
CHOICES = {
    Scope.CALL: "Only this call",
    Scope.SESSION: "This session{in_folder}",
    Scope.FOLDER: "This folder on {host}",
    Scope.EVERYWHERE: "Everywhere",
}
COVERS = {
    Scope.CALL: "Only this call",
    Scope.SESSION: "{which} call in this session{in_folder}",
    Scope.FOLDER: "{which} call in {folder} on {host}",
    Scope.EVERYWHERE: "{which} call everywhere",
}
OLD_SCOPE = (
    "The same call in every session and folder, on every host (approved before the scope could be chosen)"
)


def _place(row: PermissionRequest) -> dict[str, str | None]:
    """Return what the words above say of where a call runs."""
    asked = requester_of(row)
    in_folder = ", in this folder" if asked.folder else ""
    return {"folder": asked.folder, "host": asked.host, "in_folder": in_folder}


@dataclass(frozen=True)
class CardMember:
    """One request of a card: who asks, and where it stands."""

    row: PermissionRequest
    now: datetime
    session_title: str = ""
    rights: Rights | None = None  # of whoever looks
    voted: Sequence[PermissionVote] = ()
    snoozed_until: datetime | None = None  # of whoever looks

    @cached_property
    def standing(self) -> RequestState:
        return approvals.standing(self.row, self.now)

    @property
    def story(self) -> str:
        return approvals.story(self.row, self.now)

    @property
    def who(self) -> str:
        """Return the requester's name: the agent, else the key or person, else the plugin."""
        context = approvals.context_of(self.row)
        return (context and (context.agent_id or context.requested_by)) or self.row.plugin_id

    @property
    def gist(self) -> str:
        """Return what is asked for in as few words as a list has room for: a command, or the target."""
        return approvals.gist_of(self.row)

    @cached_property
    def session_url(self) -> str:
        """Return where its session shows the call; nothing where no page can have that session's name."""
        context = approvals.context_of(self.row)
        if context is None or not context.session_id:
            return ""
        try:
            url = reverse("sessions:detail", args=[context.session_id])
        except NoReverseMatch:  # another program's
            return ""
        event = context.event_id
        return f"{url}?event={event}#event-{event}" if event else url

    @property
    def until_label(self) -> str:
        """Return what its `expires_at` says: when asking ends or, once decided, until when the approval holds."""
        return "Deadline" if self.row.status in approvals.UNDECIDED else "Valid until"

    @property
    def past_deadline(self) -> Any:
        """Return the deadline it had, where `expires_at` says something else by now."""
        context = approvals.context_of(self.row)
        deadline = context.deadline if context else None
        return None if deadline == self.row.expires_at else deadline

    @property
    def agent_waits_until(self) -> datetime | None:
        """Return until when the agent itself waits, where its request may outlast that; None where it does not."""
        context = approvals.context_of(self.row)
        until = context.waits_until if context else None
        return until if isinstance(until, datetime) and until > self.now else None

    @property
    def told_to_wait(self) -> bool:
        """Say whether the request still waits, though its agent was denied for now and may ask again."""
        context = approvals.context_of(self.row)
        outlasts = context is not None and context.repeat_key is not None
        return outlasts and self.standing.waiting and self.agent_waits_until is None

    @property
    def is_abandoned(self) -> bool:
        """Say whether nobody waits for a request that `told_to_wait` means, though nobody was told to."""
        context = approvals.context_of(self.row)
        return self.told_to_wait and context is not None and context.held_at is None

    @property
    def runs_once_until(self) -> datetime | None:
        """Return until when the same call may run by this approval, where nobody waits who would run it now."""
        return None if self.agent_waits_until else approvals.usable_until(self.row, self.now)

    @property
    def is_marked(self) -> bool:
        """Say whether there is more to tell of one that waits than who asks, since when and until when."""
        return bool(self.assigned_to or self.snoozed_until or self.told_to_wait or self.needed > 1)

    @property
    def waited(self) -> timedelta | None:
        return approvals.waited(self.row)

    @cached_property
    def judged(self) -> str:
        """Return the digest of what the card shows of it, which the card's form sends back."""
        return judged_digest(self.row)

    @property
    def assigned_to(self) -> str:
        """Return whose turn it is; nobody's where nobody has said so."""
        assignment = getattr(self.row, "assignment", None)
        return assignment.person if assignment is not None else ""

    @property
    def edited_parts(self) -> list[Part]:
        """Return the input that was approved in place of the one asked for."""
        return judged_parts(approvals.edited_input(self.row))

    @property
    def covers(self) -> str:
        """Return what its approval covers, in words; empty where there is none."""
        scope, context = approvals.scope_of(self.row), approvals.context_of(self.row)
        if scope is None:
            return ""
        if context is None or context.scope is None:
            return OLD_SCOPE if scope == Scope.EVERYWHERE else COVERS[Scope.CALL]
        which = "The edited" if approvals.is_edited(self.row) else "The same"
        known = {str(one): words for one, words in COVERS.items()}
        return known[scope].format(which=which, **_place(self.row)) if scope in known else scope

    @property
    def needed(self) -> int:
        """Return how many people must approve."""
        return self.rights.needed(self.row) if self.rights else approvals.needed(self.row)

    @cached_property
    def votes(self) -> list[PermissionVote]:
        """Return the approvals that are in and count, where it takes several people."""
        if self.needed < 2:
            return []
        return self.rights.counting(self.row, self.voted) if self.rights else list(self.voted)

    @cached_property
    def has_your_approval(self) -> bool:
        """Say whether whoever looks has approved it already, so that it waits for one more person."""
        return bool(self.rights and self.standing.waiting and self.rights.has_approved(self.votes))

    @cached_property
    def why_not(self) -> str:
        """Say why whoever looks may not decide it; nothing where their role says so already."""
        return self.rights.why_not(self.row) if self.rights else ""

    @cached_property
    def waits_for(self) -> str:
        return self.rights.waits_for(self.row) if self.rights else ""


@dataclass(frozen=True)
class Card:
    members: Sequence[CardMember]
    grantable: bool = False  # whether the plugin could be given this permission for good
    glance: Glance | None = None
    lane: str = ""  # the group of the page in which it stands
    rest: Sequence[str] = ()  # ids of those that wait for the same and are not drawn
    folder: str = ""  # in which the first one's agent works, where that says who asks
    is_braked: bool = False  # whether a brake keeps some who wait from being approved

    @property
    def first(self) -> PermissionRequest:
        return self.members[0].row

    @cached_property
    def gateway_request(self) -> GatewayRequest | None:
        """Return the call of an MCP server's tool that is asked for; None where it is something else."""
        return gateway_request_of(self.first)

    @property
    def who(self) -> str:
        """Return who asks: of several agents that ask for the same, the first and how many more."""
        names = list(dict.fromkeys(member.who for member in self.members))
        return f"{names[0]} and {len(names) - 1} more" if len(names) > 1 else names[0]

    @cached_property
    def key(self) -> str:
        own = group_key(self.first)[:32]
        return f"{own}-{self.lane}" if self.lane else own

    @cached_property
    def choice(self) -> str:
        """Return what choosing the card means: each request that this person may decide, as it is shown."""
        return json.dumps([f"{member.judged}:{member.row.request_id}" for member in self.yours])

    @cached_property
    def whole(self) -> str:
        """Return all who wait in the same form, without what is shown of them: nothing of it is decided."""
        waiting = [*(member.row.request_id for member in self.waiting), *self.rest]
        return json.dumps([f":{request_id}" for request_id in waiting[:MOST_ARRANGED]])

    @property
    def left(self) -> int:
        """Return how many more wait for the same than are drawn."""
        return len(self.rest)

    @cached_property
    def waiting(self) -> list[CardMember]:
        return [member for member in self.members if member.standing.waiting]

    @property
    def asking(self) -> int:
        """Return how many wait for it, drawn or not."""
        return len(self.waiting) + self.left

    @cached_property
    def yours(self) -> list[CardMember]:
        """Return those who wait whom the person who looks may decide."""
        return [member for member in self.waiting if not member.why_not]

    @cached_property
    def approvable(self) -> list[CardMember]:
        """Return those of `yours` that the person who looks may approve now, and has not approved yet."""
        return [member for member in self.yours if not (member.has_your_approval or self.is_braked)]

    @property
    def danger(self) -> str:
        """Return what is asked once more before it is approved; nothing where no mark says danger."""
        found = sorted(self.glance.dangers) if self.glance else []
        return f"Marked as dangerous: {', '.join(found).lower()}. Approve it all the same?" if found else ""

    @property
    def are_equal_calls(self) -> bool:
        """Say whether several wait that one asker makes: equal calls, of which each approval runs one."""
        askers = {requester_of(member.row) for member in self.yours}
        return len(self.yours) > 1 and len(askers) == 1

    @cached_property
    def waits_for(self) -> list[str]:
        """Return whom they wait for, each once; nothing where every approver may decide."""
        return list(dict.fromkeys(member.waits_for for member in self.waiting if member.waits_for))

    @cached_property
    def why_not(self) -> list[str]:
        """Return why the person who looks may not decide some, where `waits_for` does not say it."""
        found = (member.why_not for member in self.waiting if member.why_not)
        return [
            words for words in dict.fromkeys(found) if not words.startswith(tuple(self.waits_for or "\0"))
        ]

    @property
    def troubles(self) -> list[str]:
        """Return, for administrators, why nobody can approve it as rows of Who decides stand."""
        found = (member.rights.trouble(member.row) for member in self.waiting if member.rights)
        return [words for words in dict.fromkeys(found) if words]

    @cached_property
    def parts(self) -> list[Part]:
        """Return the call's input, with the pieces shown that make it dangerous."""
        found = judged_parts(approvals.subject_of(self.first).tool_input)
        return [self.glance.with_spans(part) for part in found] if self.glance else found

    @property
    def is_longer_than_gist(self) -> bool:
        """Say whether a list that shows the gist alone would leave out much of what is asked."""
        shown = len(self.members[0].gist)
        return any(part.tall for part in self.parts) or self._length > shown + MOST_UNSHOWN

    @property
    def _length(self) -> int:
        return sum(len(text) for part in self.parts for text in part.texts)

    @cached_property
    def edit(self) -> ToolCallEdit | None:
        """Return what a person may add to an approval of the card, if its requester will receive it."""
        return edit_of(self.first, with_rules=self.may_allow_for_good)

    @cached_property
    def deceives(self) -> bool:
        """Say whether anything that is asked for holds characters that an eye misses."""
        texts = [self.first.target_resource or "", *self.justifications]
        texts += [text for part in self.parts for text in part.texts]
        return any(map(holds_invisible, texts))

    @cached_property
    def has_lookalikes(self) -> bool:
        """Say whether anything that is asked for holds letters that look like others."""
        texts = [self.first.target_resource or "", *(text for part in self.parts for text in part.texts)]
        return any(map(holds_lookalikes, texts))

    @cached_property
    def runs_hidden(self) -> bool:
        """Say whether something that a mask hides is decoded or run."""
        subject = approvals.subject_of(self.first)
        return runs_hidden([subject.target_resource, subject.tool_input])

    @property
    def revocable(self) -> bool:
        """Say whether there is an approval here that somebody could take back."""
        return any(approvals.can_revoke(member.row, member.now) for member in self.members)

    @cached_property
    def scopes(self) -> list[tuple[str, str]]:
        """Return what an approval can cover for each of those who wait, and how the card says it."""
        wanted = [requester_of(member.row) for member in self.waiting]
        return [
            (scope.value, CHOICES[scope].format(**_place(self.first)))
            for scope in Scope
            if all(scope in one.scopes for one in wanted)
        ]

    @cached_property
    def gives_access(self) -> bool:
        """Say whether an approval becomes a grant: that is for a time, and wherever its agent works."""
        return all(wanted_access_of(member.row) is not None for member in self.waiting)

    @property
    def may_allow_for_good(self) -> bool:
        """Say whether the person who looks may let such calls run from now on."""
        rights = self.members[0].rights
        return rights is None or rights.edits_policy

    @property
    def may_stand(self) -> bool:
        """Say whether the person who looks may approve it until somebody revokes that: access is a grant then."""
        return self.may_allow_for_good or not self.gives_access

    @property
    def may_last(self) -> bool:
        """Say whether the person who looks may have a rule or grant answer such a request for good."""
        if not (self.yours and self.may_allow_for_good):
            return False
        return self.members[0].needed < 2 and narrowest.may_have_answer(self.first)

    @property
    def justifications(self) -> list[str]:
        return list(dict.fromkeys(member.row.justification for member in self.members))


def cards_of(
    groups: Iterable[Sequence[PermissionRequest]],
    now: datetime,
    *,
    rights: Rights | None = None,
    lane: str = "",
    snoozed: Mapping[str, datetime] = MappingProxyType({}),
) -> list[Card]:
    """Return one card for each group of requests that ask for the same thing, as it is to who has these `rights`."""
    drawn = [_drawn(group, now) for group in groups]
    groups = [group for group, _ in drawn]
    wishes = {(group[0].plugin_id, group[0].permission_type) for group in groups}
    grantable = plugin_permissions.grantable(wishes) if rights is None or rights.edits_policy else set()
    named = titles.of(session_of(row) for group in groups for row in group)
    voted = _votes(row for group in groups for row in group)
    folders = _find_folders(group[0] for group in groups)
    has_brakes = bool(brakes.in_force())

    def member(row: PermissionRequest) -> CardMember:
        title, name = named.get(session_of(row) or "", ""), row.request_id
        return CardMember(row, now, title, rights, voted.get(name, ()), snoozed.get(name))

    return [
        Card(
            [member(row) for row in group],
            (group[0].plugin_id, group[0].permission_type) in grantable,
            glance,
            lane,
            rest,
            folders.get(session_of(group[0]) or "", ""),
            has_brakes and any(brakes.holds_request(row) for row in group if row.status == "pending"),
        )
        for (group, rest), glance in zip(drawn, glances(groups), strict=True)
    ]


def _drawn(
    group: Sequence[PermissionRequest], now: datetime
) -> tuple[Sequence[PermissionRequest], Sequence[str]]:
    """Return what one card draws of a group, so many as wait that one form can decide them, and the ids of the rest."""
    waiting = [row.request_id for row in group if approvals.standing(row, now).waiting]
    rest = waiting[MOST_ON_A_CARD:]
    if not rest:
        return group, rest
    later = frozenset(rest)
    return [row for row in group if row.request_id not in later], rest


def _find_folders(rows: Iterable[PermissionRequest]) -> dict[str, str]:
    """Return by session the folder of whoever asks for a call at the gateway; no query where nobody does."""
    asked = (session_of(row) for row in rows if gateway_gist_of(row) is not None)
    session_ids = {session_id for session_id in asked if session_id}
    return folder_names(session_ids) if session_ids else {}


def _votes(rows: Iterable[PermissionRequest]) -> dict[str, list[PermissionVote]]:
    """Return the approvals that are in, by request; no query where none takes several people."""
    found: dict[str, list[PermissionVote]] = {}
    several = [row for row in rows if approvals.needed(row) > 1]
    for vote in PermissionVote.objects.filter(request__in=several).order_by("id") if several else ():
        found.setdefault(vote.request_id, []).append(vote)
    return found


def session_of(row: PermissionRequest) -> str | None:
    """Return the session in which a request was made, if it names one."""
    context = approvals.context_of(row)
    return context.session_id if context else None


def card_of(rows: Iterable[PermissionRequest], now: datetime, *, rights: Rights | None = None) -> Card:
    """Return one card for requests that ask for the same thing."""
    [card] = cards_of([list(rows)], now, rights=rights)
    return card
