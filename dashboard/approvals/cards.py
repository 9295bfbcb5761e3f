"""Cards of the inbox: one card shows identical requests together, each with its state."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from types import MappingProxyType
from typing import Any

from django.urls import NoReverseMatch, reverse

from coordinator.actions.approvals.triage import MOST_ARRANGED
from coordinator.actions.plugins import plugin_permissions
from coordinator.lib.invisible import has_invisible_character
from coordinator.lib.lookalikes import has_lookalike_characters
from coordinator.models import PermissionRequest, PermissionVote
from coordinator.models.agent_names import LinkedAgent, load_linked_agents_by_name
from coordinator.models.permissions import RequestStatus
from coordinator.policy.grants.access_requests import parse_access_request_or_none
from coordinator.policy.limits import brakes
from coordinator.policy.requests import approvals
from coordinator.policy.requests.approval_coverage import request_requester
from coordinator.policy.requests.approvals import RequestState, Scope
from coordinator.policy.requests.gateway_requests import (
    GatewayRequest,
    gateway_request_call_label,
    load_folder_names_by_session,
    parse_gateway_request_or_none,
)
from coordinator.policy.requests.judged_content import card_grouping_digest, judged_card_digest
from coordinator.policy.requests.request_headlines import RequestAct, build_permission_request_headline
from coordinator.policy.suggestions import rules_for_requests
from coordinator.secrets.masked_code import can_value_run_masked_secret
from coordinator.sessions import titles
from dashboard.approvals.background import RequestBackground, load_backgrounds_of_request_groups
from dashboard.approvals.edits import ToolCallEdit, tool_call_edit_or_none
from dashboard.approvals.excerpts import DangerExcerpts, build_danger_excerpts
from dashboard.approvals.questions import (
    AnswerLine,
    QuestionDisplay,
    build_question_display_or_none,
    list_answer_lines,
)
from dashboard.approvals.rights import DecisionRights
from dashboard.approvals.verdicts import MOST_ON_A_CARD
from dashboard.looks.inputs import build_exact_input_parts_for_approver
from dashboard.looks.parts import DisplayPart

LONGEST_IN_VIEW = 600  # characters of a call that a card shows unfolded
MOST_LINES_IN_VIEW = 8
MOST_UNSHOWN = 200  # characters of a call that a list of chosen requests may hide
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


def scope_label_placeholders(row: PermissionRequest) -> dict[str, str | None]:
    """Return the values for the placeholders in CHOICES and COVERS: folder, host and `in_folder`."""
    requester = request_requester(row)
    in_folder = ", in this folder" if requester.folder else ""
    return {"folder": requester.folder, "host": requester.host, "in_folder": in_folder}


def load_linked_agents_by_request(rows: Iterable[PermissionRequest]) -> dict[str, LinkedAgent]:
    """Return the agent to which each request's agent name is linked, by the request's id."""
    contexts = ((row.request_id, approvals.request_context(row)) for row in rows)
    names = {request_id: context.agent_id for request_id, context in contexts if context is not None}
    agents = load_linked_agents_by_name(names.values())
    return {request_id: agents[name] for request_id, name in names.items() if name in agents}


@dataclass(frozen=True)
class CardMember:
    """One request of a card: its row, who makes it and its state."""

    row: PermissionRequest
    now: datetime
    session_title: str = ""
    rights: DecisionRights | None = None  # of the person who views the card
    voted: Sequence[PermissionVote] = ()
    snoozed_until: datetime | None = None  # by the person who views the card
    agent: LinkedAgent | None = None  # linked to the requester's name; shown only, decides nothing

    @cached_property
    def request_state(self) -> RequestState:
        return approvals.current_request_state(self.row, self.now)

    @property
    def state_description(self) -> str:
        return approvals.describe_request_outcome(self.row, self.now)

    @property
    def requester_name(self) -> str:
        return approvals.requester_name(self.row)

    @property
    def decider_label(self) -> str:
        """Return who decided the request; a rule or another policy is named as "not a person"."""
        name = self.row.approved_by or ""
        if not approvals.is_denied_by_policy(self.row):
            return name
        return f"{name[:1].upper()}{name[1:]}, not a person"

    @cached_property
    def act(self) -> RequestAct:
        """Return the headline of the request."""
        return build_permission_request_headline(self.row)

    @property
    def requested_call_gist(self) -> str:
        """Return the requested call in a few words, for lists: a command, or the target."""
        return approvals.permission_request_gist(self.row)

    @cached_property
    def url_of_call_in_session(self) -> str:
        """Return the URL of the call in its session; empty if the session has no page."""
        context = approvals.request_context(self.row)
        if context is None or not context.session_id:
            return ""
        try:
            url = reverse("sessions:detail", args=[context.session_id])
        except NoReverseMatch:  # a session id of another program that no URL can hold
            return ""
        event = context.event_id
        return f"{url}?event={event}#event-{event}" if event else url

    @property
    def expiry_label(self) -> str:
        """Return the label of `expires_at`: a deadline before the decision, the approval's end after it."""
        return "Deadline" if self.row.status in approvals.UNDECIDED else "Valid until"

    @property
    def original_deadline_if_changed(self) -> Any:
        """Return the deadline of the request if `expires_at` has another value by now, else None."""
        context = approvals.request_context(self.row)
        deadline = context.deadline if context else None
        return None if deadline == self.row.expires_at else deadline

    @property
    def agent_waits_until(self) -> datetime | None:
        """Return until when the agent waits for the decision; None if it does not wait any more."""
        context = approvals.request_context(self.row)
        until = context.waits_until if context else None
        return until if isinstance(until, datetime) and until > self.now else None

    @property
    def is_pending_without_waiting_agent(self) -> bool:
        """Return whether the request waits although its agent was denied for now, to make the call again."""
        context = approvals.request_context(self.row)
        outlasts = context is not None and context.repeat_key is not None
        return outlasts and self.request_state.waiting and self.agent_waits_until is None

    @property
    def is_abandoned(self) -> bool:
        """Return whether the request awaits a retry although its agent was not told to wait and try again."""
        context = approvals.request_context(self.row)
        return self.is_pending_without_waiting_agent and context is not None and context.held_at is None

    @property
    def single_use_approval_deadline(self) -> datetime | None:
        """Return until when the same call may run once by this approval.

        None if the agent still waits, so that the call runs now, or if no such call may run.
        """
        return None if self.agent_waits_until else approvals.single_use_valid_until(self.row, self.now)

    @property
    def has_further_request_details(self) -> bool:
        """Return whether a waiting request has details besides requester, time and deadline."""
        return bool(
            self.assignee_name
            or self.snoozed_until
            or self.is_pending_without_waiting_agent
            or self.required_approver_count > 1
        )

    @property
    def waiting_time(self) -> timedelta | None:
        return approvals.time_waited_for_decision(self.row)

    @cached_property
    def displayed_request_digest(self) -> str:
        """Return the digest of what the card shows of the request. The card's form sends it back."""
        return judged_card_digest(self.row)

    @property
    def assignee_name(self) -> str:
        """Return the name of the person to whom the request is assigned; empty if it is unassigned."""
        assignment = getattr(self.row, "assignment", None)
        return assignment.person if assignment is not None else ""

    @property
    def edited_input_parts(self) -> list[DisplayPart]:
        """Return the input that was approved instead of the requested one, as parts."""
        return build_exact_input_parts_for_approver(approvals.approved_edited_input(self.row))

    @property
    def answer_lines(self) -> list[AnswerLine]:
        """Return the questions with the answers that a person gave."""
        return list_answer_lines(self.row)

    @property
    def is_decided_by_viewer(self) -> bool:
        """Return whether the person who views the card decided the request alone and nobody revoked that."""
        context = approvals.request_context(self.row)
        is_decided = self.row.status in approvals.DECIDED and (context is None or context.revoked_at is None)
        viewer = self.rights.person.get_username() if self.rights else None
        return is_decided and self.row.approved_by == viewer

    @property
    def viewer_decision_note(self) -> str:
        """Return details of the viewer's decision: an edited input, a stopped turn, for whom they decided."""
        context = approvals.request_context(self.row)
        note = ", with an edited input" if approvals.has_edited_input(self.row) else ""
        note += ", turn ended" if approvals.is_turn_stopped(self.row) else ""
        return f"{note} ({context.decided_for})" if context is not None and context.decided_for else note

    @property
    def approval_coverage_label(self) -> str:
        """Return which calls the approval covers, in words; empty if there is no approval."""
        scope, context = approvals.approval_scope(self.row), approvals.request_context(self.row)
        if scope is None:
            return ""
        if context is None or context.scope is None:
            return OLD_SCOPE if scope == Scope.EVERYWHERE else COVERS[Scope.CALL]
        beginning = "The edited" if approvals.has_edited_input(self.row) else "The same"
        covers_labels = {str(covers_value): covers_label for covers_value, covers_label in COVERS.items()}
        return (
            covers_labels[scope].format(which=beginning, **scope_label_placeholders(self.row))
            if scope in covers_labels
            else scope
        )

    @property
    def required_approver_count(self) -> int:
        """Return how many people must approve the request."""
        return (
            self.rights.count_required_approvals(self.row)
            if self.rights
            else approvals.required_approver_count(self.row)
        )

    @cached_property
    def counted_votes(self) -> list[PermissionVote]:
        """Return the approving votes that count; empty if one person's approval suffices."""
        if self.required_approver_count < 2:
            return []
        return self.rights.select_counted_votes(self.row, self.voted) if self.rights else list(self.voted)

    @cached_property
    def has_viewer_approved(self) -> bool:
        """Return whether the viewer has already approved the request, which waits for a second person."""
        return bool(
            self.rights
            and self.request_state.waiting
            and self.rights.has_person_voted_to_approve(self.counted_votes)
        )

    @cached_property
    def viewer_ineligibility_reason(self) -> str:
        """Return why the viewer may not decide the request; empty if they may, or lack the role approver."""
        return self.rights.explain_why_person_cannot_decide(self.row) if self.rights else ""

    @cached_property
    def awaited_deciders_sentence(self) -> str:
        return self.rights.describe_awaited_deciders(self.row) if self.rights else ""


@dataclass(frozen=True)
class ApprovalCard:
    members: Sequence[CardMember]
    grantable: bool = False  # whether an approver can give the plugin this permission permanently
    glance: RequestBackground | None = None
    group_key: str = ""  # key of the group on the page to which the card belongs
    rest: Sequence[str] = ()  # ids of requests for the same call that are not drawn
    folder: str = ""  # the first requester's folder, shown if the request is one at the gateway
    is_braked: bool = False  # whether a brake prevents the approval of some of the requests

    @property
    def first_request(self) -> PermissionRequest:
        return self.members[0].row

    @cached_property
    def gateway_request(self) -> GatewayRequest | None:
        """Return the requested call of an MCP server's tool; None if it is not one at the gateway."""
        return parse_gateway_request_or_none(self.first_request)

    @cached_property
    def question(self) -> QuestionDisplay | None:
        """Return the question or plan that is asked; None if the request is only approved or denied."""
        return build_question_display_or_none(self.first_request)

    @property
    def requester_summary(self) -> str:
        """Return who makes the request: of several agents, the first one and the number of the others."""
        names = list(dict.fromkeys(member.requester_name for member in self.members))
        return f"{names[0]} and {len(names) - 1} more" if len(names) > 1 else names[0]

    @cached_property
    def key(self) -> str:
        own = card_grouping_digest(self.first_request)[:32]
        return f"{own}-{self.group_key}" if self.group_key else own

    @cached_property
    def decidable_requests_as_json(self) -> str:
        """Return the value of the card's checkbox, a JSON list.

        It has `DIGEST:ID` for each request that the viewer may decide.
        """
        return json.dumps(
            [
                f"{member.displayed_request_digest}:{member.row.request_id}"
                for member in self.decidable_members
            ]
        )

    @cached_property
    def waiting_request_ids_as_json(self) -> str:
        """Return the ids of all waiting requests in the same format, with empty digests.

        The value is used to assign and snooze requests, not to decide them.
        """
        waiting = [*(member.row.request_id for member in self.waiting_members), *self.rest]
        return json.dumps([f":{request_id}" for request_id in waiting[:MOST_ARRANGED]])

    @property
    def count_of_requests_not_drawn(self) -> int:
        """Return how many waiting requests for the same call are not drawn."""
        return len(self.rest)

    @cached_property
    def waiting_members(self) -> list[CardMember]:
        return [member for member in self.members if member.request_state.waiting]

    @property
    def waiting_count(self) -> int:
        """Return how many requests wait, including those that are not drawn."""
        return len(self.waiting_members) + self.count_of_requests_not_drawn

    @cached_property
    def decidable_members(self) -> list[CardMember]:
        """Return the waiting members that the viewer may decide."""
        return [member for member in self.waiting_members if not member.viewer_ineligibility_reason]

    @cached_property
    def approvable_members(self) -> list[CardMember]:
        """Return the members of `decidable_members` that the viewer may approve and has not approved yet."""
        return [
            member for member in self.decidable_members if not (member.has_viewer_approved or self.is_braked)
        ]

    @property
    def can_stop_turn(self) -> bool:
        """Return whether a denial of all decidable members can also end their agents' turns."""
        return bool(self.decidable_members) and all(
            approvals.can_stop_turn(member.row) and not member.is_pending_without_waiting_agent
            for member in self.decidable_members
        )

    @property
    def danger_confirmation_prompt(self) -> str:
        """Return the question to confirm before an approval; empty without a mark of grade danger."""
        danger_marks = sorted(self.glance.danger_marks) if self.glance else []
        return (
            f"Marked as dangerous: {', '.join(danger_marks).lower()}. Approve it all the same?"
            if danger_marks
            else ""
        )

    @property
    def has_repeated_calls_by_requester(self) -> bool:
        """Return whether several decidable members are equal calls of one requester.

        Each approval runs one of them.
        """
        askers = {request_requester(member.row) for member in self.decidable_members}
        return len(self.decidable_members) > 1 and len(askers) == 1

    @cached_property
    def distinct_awaited_deciders_sentences(self) -> list[str]:
        """Return whom the waiting members wait for, once each; empty if every approver may decide."""
        return list(
            dict.fromkeys(
                member.awaited_deciders_sentence
                for member in self.waiting_members
                if member.awaited_deciders_sentence
            )
        )

    @cached_property
    def viewer_ineligibility_reasons(self) -> list[str]:
        """Return why the viewer may not decide some members, without `distinct_awaited_deciders_sentences`."""
        refusal_reasons = (
            member.viewer_ineligibility_reason
            for member in self.waiting_members
            if member.viewer_ineligibility_reason
        )
        return [
            reason
            for reason in dict.fromkeys(refusal_reasons)
            if not reason.startswith(tuple(self.distinct_awaited_deciders_sentences or "\0"))
        ]

    @property
    def reasons_nobody_can_approve(self) -> list[str]:
        """Return, for administrators, why nobody can approve it under the current rows of Who decides."""
        problems = (
            member.rights.missing_approvers_explanation_or_empty(member.row)
            for member in self.waiting_members
            if member.rights
        )
        return [problem for problem in dict.fromkeys(problems) if problem]

    @cached_property
    def act(self) -> RequestAct:
        """Return the headline of the request."""
        return self.members[0].act

    @cached_property
    def headline_subject_part(self) -> DisplayPart:
        """Return the headline's subject, with dangerous pieces highlighted."""
        [part] = self.highlight_danger_in_parts([DisplayPart("text", self.act.subject, exact=True)])
        return part

    @cached_property
    def input_parts(self) -> list[DisplayPart]:
        """Return the call's input as parts, with dangerous pieces highlighted."""
        return self.highlight_danger_in_parts(
            build_exact_input_parts_for_approver(approvals.request_subject(self.first_request).tool_input)
        )

    @cached_property
    def input_parts_beyond_headline(self) -> list[DisplayPart]:
        """Return the parts of the call's input that the headline does not already show completely."""
        tool_input = approvals.request_subject(self.first_request).tool_input
        if not self.act.whole_field or not isinstance(tool_input, Mapping):
            return self.input_parts
        further = {name: value for name, value in tool_input.items() if name != self.act.whole_field}
        return self.highlight_danger_in_parts(build_exact_input_parts_for_approver(further or None))

    def highlight_danger_in_parts(self, parts: Iterable[DisplayPart]) -> list[DisplayPart]:
        return [self.glance.part_with_danger_spans(part) if self.glance else part for part in parts]

    @cached_property
    def is_input_folded(self) -> bool:
        """Return whether the exact input is folded, so that it must be opened before an approval."""
        lines = sum(
            len(part.value) if part.kind == "facts" else part.line_count
            for part in self.input_parts_beyond_headline
        )
        length = sum(len(text) for part in self.input_parts_beyond_headline for text in part.drawn_texts)
        return lines > MOST_LINES_IN_VIEW or length > LONGEST_IN_VIEW

    @property
    def line_count_beyond_headline(self) -> int:
        return sum(
            len(part.value) if part.kind == "facts" else part.line_count
            for part in self.input_parts_beyond_headline
        )

    @cached_property
    def danger_excerpts(self) -> DangerExcerpts:
        """Return the marked lines of a long input. They stay visible while the input is folded."""
        return build_danger_excerpts(self.input_parts_beyond_headline)

    @property
    def is_target_missing_in_headline(self) -> bool:
        """Return whether the target must be shown separately because the headline does not contain it."""
        target = self.first_request.target_resource
        return target is not None and target != "" and not self.act.contains_full_text(target)

    @property
    def is_longer_than_gist(self) -> bool:
        """Return whether a list that shows only the gist would hide much of the requested call."""
        gist_length = len(self.members[0].requested_call_gist)
        return (
            any(part.is_block_scrollable for part in self.input_parts)
            or self.input_text_length > gist_length + MOST_UNSHOWN
        )

    @property
    def input_text_length(self) -> int:
        return sum(len(text) for part in self.input_parts for text in part.drawn_texts)

    @cached_property
    def offered_edit(self) -> ToolCallEdit | None:
        """Return the edit that a person may make to the call; None if its requester cannot receive one."""
        return tool_call_edit_or_none(self.first_request, with_rules=self.can_change_policy)

    @cached_property
    def has_invisible_characters(self) -> bool:
        """Return whether a text of the request has invisible characters."""
        texts = [self.first_request.target_resource or "", *self.all_justifications]
        texts += [text for part in self.input_parts for text in part.drawn_texts]
        return any(map(has_invisible_character, texts))

    @cached_property
    def has_lookalikes(self) -> bool:
        """Return whether a text of the request has letters that look like others."""
        texts = [
            self.first_request.target_resource or "",
            *(text for part in self.input_parts for text in part.drawn_texts),
        ]
        return any(map(has_lookalike_characters, texts))

    @cached_property
    def decodes_or_runs_masked_text(self) -> bool:
        """Return whether the call decodes or runs a value that is masked on the card."""
        subject = approvals.request_subject(self.first_request)
        return can_value_run_masked_secret([subject.target_resource, subject.tool_input])

    @property
    def is_revocable(self) -> bool:
        """Return whether the card has an approval that can be revoked."""
        return any(approvals.has_revocable_approval(member.row, member.now) for member in self.members)

    @cached_property
    def offered_scopes(self) -> list[tuple[str, str]]:
        """Return the scopes that an approval of all waiting members can have, each with its label."""
        requesters = [request_requester(member.row) for member in self.waiting_members]
        return [
            (scope.value, CHOICES[scope].format(**scope_label_placeholders(self.first_request)))
            for scope in Scope
            if all(scope in requester.possible_scopes for requester in requesters)
        ]

    @cached_property
    def is_access_request(self) -> bool:
        """Return whether an approval creates a grant. A grant ends at a time and is valid in every folder."""
        return all(parse_access_request_or_none(member.row) is not None for member in self.waiting_members)

    @property
    def can_change_policy(self) -> bool:
        """Return whether the viewer may change rules and grants."""
        rights = self.members[0].rights
        return rights is None or rights.can_change_rules_and_grants

    @property
    def can_approve_until_revoked(self) -> bool:
        """Return whether the viewer may approve until somebody revokes it.

        For access requests that is a grant.
        """
        return self.can_change_policy or not self.is_access_request

    @property
    def can_create_rule(self) -> bool:
        """Return whether the viewer may create a rule or grant that answers such requests from now on."""
        if not (self.decidable_members and self.can_change_policy):
            return False
        return self.members[
            0
        ].required_approver_count < 2 and rules_for_requests.can_rule_or_grant_answer_request(
            self.first_request
        )

    @property
    def all_justifications(self) -> list[str]:
        return list(dict.fromkeys(member.row.justification for member in self.members))


def build_approval_cards(
    groups: Iterable[Sequence[PermissionRequest]],
    now: datetime,
    *,
    rights: DecisionRights | None = None,
    group_key: str = "",
    snoozed: Mapping[str, datetime] = MappingProxyType({}),
) -> list[ApprovalCard]:
    """Return a card for each group of requests for the same call.

    Args:
        groups: The requests, grouped by call.
        now: The current time.
        rights: The rights of the person who views the cards; None for nobody in particular.
        group_key: The key of the group on the page, which becomes part of each card's key.
        snoozed: Until when the viewer snoozed requests, by id.
    """
    drawn = [split_drawn_and_remaining_requests(group, now) for group in groups]
    groups = [group for group, _ in drawn]
    wishes = {(group[0].plugin_id, group[0].permission_type) for group in groups}
    grantable = (
        plugin_permissions.filter_addable_plugin_permissions(wishes)
        if rights is None or rights.can_change_rules_and_grants
        else set()
    )
    session_titles = titles.load_session_titles(
        find_request_session_id(row) for group in groups for row in group
    )
    voted = load_votes_by_request(row for group in groups for row in group)
    agents = load_linked_agents_by_request(row for group in groups for row in group)
    folders = load_gateway_folders_by_session(group[0] for group in groups)
    has_brakes = bool(brakes.load_active_brakes())

    def build_card_member(row: PermissionRequest) -> CardMember:
        title, name = session_titles.get(find_request_session_id(row) or "", ""), row.request_id
        return CardMember(
            row, now, title, rights, voted.get(name, ()), snoozed.get(name), agents.get(row.request_id)
        )

    return [
        ApprovalCard(
            [build_card_member(row) for row in group],
            (group[0].plugin_id, group[0].permission_type) in grantable,
            glance,
            group_key,
            rest,
            folders.get(find_request_session_id(group[0]) or "", ""),
            has_brakes
            and any(brakes.is_request_braked(row) for row in group if row.status == RequestStatus.PENDING),
        )
        for (group, rest), glance in zip(drawn, load_backgrounds_of_request_groups(groups), strict=True)
    ]


def split_drawn_and_remaining_requests(
    group: Sequence[PermissionRequest], now: datetime
) -> tuple[Sequence[PermissionRequest], Sequence[str]]:
    """Return the requests that one card draws, and the ids of the other waiting ones.

    A card draws at most MOST_ON_A_CARD waiting requests, as many as its form can decide.
    """
    waiting = [row.request_id for row in group if approvals.current_request_state(row, now).waiting]
    rest = waiting[MOST_ON_A_CARD:]
    if not rest:
        return group, rest
    later = frozenset(rest)
    return [row for row in group if row.request_id not in later], rest


def load_gateway_folders_by_session(rows: Iterable[PermissionRequest]) -> dict[str, str]:
    """Return the folder of each session that requests calls at the gateway, by session id.

    Makes no query if there is none.
    """
    request_session_ids = (
        find_request_session_id(row) for row in rows if gateway_request_call_label(row) is not None
    )
    session_ids = {session_id for session_id in request_session_ids if session_id}
    return load_folder_names_by_session(session_ids) if session_ids else {}


def load_votes_by_request(rows: Iterable[PermissionRequest]) -> dict[str, list[PermissionVote]]:
    """Return the votes of each request that several people must approve. Makes no query if there is none."""
    votes_by_request: dict[str, list[PermissionVote]] = {}
    several = [row for row in rows if approvals.required_approver_count(row) > 1]
    for vote in PermissionVote.objects.filter(request__in=several).order_by("id") if several else ():
        votes_by_request.setdefault(vote.request_id, []).append(vote)
    return votes_by_request


def find_request_session_id(row: PermissionRequest) -> str | None:
    """Return the id of the session in which a request was made; None if it names none."""
    context = approvals.request_context(row)
    return context.session_id if context else None


def build_approval_card(
    rows: Iterable[PermissionRequest], now: datetime, *, rights: DecisionRights | None = None
) -> ApprovalCard:
    """Return the card for requests of the same call."""
    [card] = build_approval_cards([list(rows)], now, rights=rights)
    return card
