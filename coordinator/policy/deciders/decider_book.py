"""Rights to decide requests: the rows of "Who decides", the groups they name, and rights handed over for a while.

The first row that fits a request names who may decide it; where none fits, every approver may. Load a `DeciderBook`
once for as many requests and people as there are: it asks the database a few times, whatever their number. Only reads;
a decision asks here in its own transaction (actions.approvals.deciding).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any

from django.conf import settings
from django.contrib.auth.models import AnonymousUser, Group, User
from django.db.models import Q
from django.utils import timezone

from coordinator.identity.roles import ADMIN, APPROVER, ROLES, has_role, people_with_role
from coordinator.models import (
    DecidingRule,
    Delegation,
    McpServer,
    PermissionRequest,
    PermissionVote,
)
from coordinator.models.permissions import RequestStatus
from coordinator.policy.deciders.rules import (
    DecidingRuleRow,
    RequestTerms,
    convert_deciding_rule,
    is_pattern_matching_any_name,
    request_terms,
)
from coordinator.policy.grants.access_requests import PERMISSION_TYPE as ACCESS
from coordinator.policy.requests import approvals

NO_ROLE = "You need the role approver to decide requests."
OWN = "You, or a key that you made, asked for this. Somebody else must decide."
NOBODY = "Nobody may decide this."
ADMINS_EDIT = (
    "Only administrators may change rules and grants while Who decides has rows: others could widen "
    "their own rights that way."
)


@dataclass(frozen=True, slots=True)
class DelegatedDecisionRight:
    """A right to decide that its giver has handed to the receiver, for now; ids of people."""

    giver: int
    receiver: int


@dataclass(frozen=True)
class DeciderBook:
    """Who may decide what at one instant. `rules` in their order; what else it takes is read when first needed."""

    now: datetime
    rules: tuple[DecidingRuleRow, ...]
    servers: tuple[str, ...] = ()
    _cached_rules: dict[RequestTerms, DecidingRuleRow | None] = field(
        default_factory=dict, compare=False, repr=False
    )
    _holders: dict[int, frozenset[int]] = field(default_factory=dict, compare=False, repr=False)

    @property
    def differs_by_person(self) -> bool:
        """Say whether some approvers may decide a request that others may not."""
        return bool(self.rules) or not settings.DECIDE_OWN_REQUESTS

    @cached_property
    def approvers_by_id(self) -> Mapping[int, User]:
        """Everybody active with the role approver, by id."""
        return {user.pk: user for user in people_with_role(APPROVER).order_by("username")}

    @cached_property
    def approvers_by_name(self) -> Mapping[str, User]:
        return {user.get_username(): user for user in self.approvers_by_id.values()}

    @cached_property
    def group_names_by_id(self) -> Mapping[int, str]:
        """The names of the groups that rows can name, by id."""
        return dict(Group.objects.exclude(name__in=ROLES).values_list("pk", "name"))

    @cached_property
    def approver_ids_by_group(self) -> Mapping[int, frozenset[int]]:
        """Who is in which group, by id; only those who may decide at all."""
        ids_by_group: dict[int, set[int]] = {}
        named_groups = {group for rule in self.rules for group in rule.groups}
        rows = User.groups.through.objects.filter(group_id__in=named_groups).values_list(
            "group_id", "user_id"
        )
        for group_id, user_id in rows:
            ids_by_group.setdefault(group_id, set()).add(user_id)
        return {
            group_id: frozenset(ids & self.approvers_by_id.keys()) for group_id, ids in ids_by_group.items()
        }

    @cached_property
    def active_delegations(self) -> Sequence[DelegatedDecisionRight]:
        """The rights that are handed over at this instant."""
        rows = Delegation.objects.current_or_upcoming(self.now).filter(starts_at__lte=self.now).order_by("id")
        return [DelegatedDecisionRight(*ids) for ids in rows.values_list("giver_id", "receiver_id")]

    def find_deciding_rule(self, request: PermissionRequest) -> DecidingRuleRow | None:
        """Return the row that says who decides the request; None leaves it to every approver."""
        return self.find_rule_matching_terms(request_terms(request, self.servers)) if self.rules else None

    def find_rule_matching_terms(self, terms: RequestTerms) -> DecidingRuleRow | None:
        if terms not in self._cached_rules:
            self._cached_rules[terms] = next((rule for rule in self.rules if rule.matches_terms(terms)), None)
        return self._cached_rules[terms]

    def required_approval_count(self, request: PermissionRequest) -> int:
        """Return how many people must approve: what held when it was asked, or more where rows say so since."""
        rule = self.find_deciding_rule(request)
        return max(approvals.required_approver_count(request), rule.needed if rule else 1)

    def rule_approver_ids(self, rule: DecidingRuleRow | None) -> frozenset[int]:
        """Return who has a right of their own by the row, by id."""
        if rule is None or rule.allows_any_approver:
            return frozenset(self.approvers_by_id)
        if rule.number not in self._holders:
            of_groups = (self.approver_ids_by_group.get(group, frozenset()) for group in rule.groups)
            self._holders[rule.number] = frozenset(set(rule.people) & self.approvers_by_id.keys()).union(
                *of_groups
            )
        return self._holders[rule.number]

    def rule_problem_or_empty(self, rule: DecidingRuleRow, needed: int = 1, subject: str = "this") -> str:
        """Return why requests that the row matches cannot currently be approved; "" where they can.

        `needed` is how many people a request needs that needs more than the row says. `subject` names it.
        """
        holders, needed = self.rule_approver_ids(rule), max(needed, rule.needed)
        if not holders:
            return f"Row {rule.number} of Who decides names no active approver."
        if len(holders) < needed:
            [only] = (self.approvers_by_id[approver_id].get_username() for approver_id in holders)
            requirer = f"Row {rule.number} of Who decides requires two people, but"
            if needed > rule.needed:
                requirer = f"Two people must approve {subject}, but by row {rule.number} of Who decides"
            return f"{requirer} only {only} may decide."
        return ""

    def find_rule_problems(self) -> list[str]:
        """Return why requests that rows match cannot currently be approved, at most one reason for each row.

        A row that names one person is a problem where it decides requests that need two.
        """
        problems = (
            self.rule_problem_or_empty(
                rule,
                2 if rule in self.two_person_needs_by_rule else 1,
                self.two_person_needs_by_rule.get(rule, ""),
            )
            for rule in self.rules
        )
        return [problem for problem in problems if problem]

    @cached_property
    def two_person_needs_by_rule(self) -> Mapping[DecidingRuleRow, str]:
        """In words, what needs two people although the row that decides it says one, by that row.

        These are types of TWO_PERSON_TYPES, and waiting requests.
        """
        needs_by_rule: dict[DecidingRuleRow, str] = {}
        if not any(rule.needed < 2 and len(self.rule_approver_ids(rule)) == 1 for rule in self.rules):
            return needs_by_rule
        types = settings.TWO_PERSON_TYPES
        for permission_type in types:
            for rule in self.list_rules_deciding_type(permission_type):
                needs_by_rule.setdefault(rule, f"requests of the type {permission_type}")
        needs_two = Q(context__needed__gt=1) | Q(permission_type__in=types)
        waiting = PermissionRequest.objects.awaiting_decision(self.now).filter(needs_two)
        for request in iterate_requests_without_inputs(waiting):
            if (decided_by := self.find_deciding_rule(request)) is not None:
                needs_by_rule.setdefault(decided_by, f"the waiting request {request.request_id}")
        return needs_by_rule

    def list_rules_deciding_type(self, permission_type: str) -> list[DecidingRuleRow]:
        """Return the rows that decide requests of a type for certain: they name it, or match every request.

        No row behind one that matches all requests of the type decides any.
        """
        deciding = []
        for rule in self.rules:
            if is_pattern_matching_any_name(rule.permission_type, {permission_type}):
                matches_all = not (rule.tool or rule.server or rule.agent or rule.host)
                if rule.permission_type or matches_all:
                    deciding.append(rule)
                if matches_all:
                    break
        return deciding

    def names_user_decides_for(self, user: User, request: PermissionRequest) -> list[str]:
        """Return by whose rights the person may decide, by name: their own first, then those handed to them.

        Nobody's right counts for what they themselves asked for, where that is forbidden.
        """
        rule, owner = self.find_deciding_rule(request), find_barred_requester_username(request)
        if user.pk not in self.approvers_by_id or user.get_username() == owner:
            return []
        return self.names_decided_for_under_rule(user, rule, owner)

    def names_decided_for_under_rule(
        self, user: User, rule: DecidingRuleRow | None, owner: str | None
    ) -> list[str]:
        holders = self.rule_approver_ids(rule)
        ids = [
            user.pk,
            *(
                approver_id.giver
                for approver_id in self.active_delegations
                if approver_id.receiver == user.pk
            ),
        ]
        names = [self.approvers_by_id[one].get_username() for one in dict.fromkeys(ids) if one in holders]
        return [name for name in names if name != owner]

    def cannot_decide_reason_or_empty(self, user: User | AnonymousUser, request: PermissionRequest) -> str:
        """Say, to the person, why they may not decide the request; nothing where they may."""
        if not isinstance(user, User) or not has_role(user, APPROVER):
            return NO_ROLE
        if user.get_username() == find_barred_requester_username(request):
            return OWN
        rule = self.find_deciding_rule(request)
        if rule is None or self.names_user_decides_for(user, request):
            return ""
        deciding_rule_text = self.describe_deciding_rule(rule)
        return (
            f"{deciding_rule_text} You are not among them."
            if self.rule_approver_ids(rule)
            else deciding_rule_text
        )

    def can_decide_request(self, user: User | AnonymousUser, request: PermissionRequest) -> bool:
        return not self.cannot_decide_reason_or_empty(user, request)

    def list_request_deciders(self, request: PermissionRequest) -> list[User]:
        """Return everybody who may decide the request, by name."""
        rule, owner = self.find_deciding_rule(request), find_barred_requester_username(request)
        other_approvers = [user for user in self.approvers_by_id.values() if user.get_username() != owner]
        return (
            other_approvers
            if rule is None
            else [user for user in other_approvers if self.names_decided_for_under_rule(user, rule, owner)]
        )

    def list_labels_of_current_deciders(self, rule: DecidingRuleRow | None) -> list[str]:
        """Return who may decide now what the row fits, in words: "bob", or "bob for anna"."""
        holders = self.rule_approver_ids(rule)
        own = [user.get_username() for pk, user in self.approvers_by_id.items() if pk in holders]
        return [*own, *(self.rule_delegate_labels(rule) if rule else ())]

    def describe_request_deciders(self, request: PermissionRequest) -> str:
        """Return the words of the card: whom the request waits for; nothing where every approver may decide."""
        rule = self.find_deciding_rule(request)
        deciding_rule_text = (
            self.describe_deciding_rule(rule)
            if rule is not None and not rule.needs_any_single_approver
            else ""
        )
        return " ".join(
            sentence
            for sentence in (deciding_rule_text, self.describe_shortage_of_deciders(request))
            if sentence
        )

    def describe_shortage_of_deciders(self, request: PermissionRequest) -> str:
        """Say why too few people can approve; nothing where there are enough, or where nobody may decide at all.

        Either the row names too few, or the requester is one of those whom it names and may not decide.
        """
        owner, rule = find_barred_requester_username(request), self.find_deciding_rule(request)
        needed = self.required_approval_count(request)
        if rule and self.rule_approver_ids(rule) and (problem := self.rule_problem_or_empty(rule, needed)):
            return f"{problem} Nobody can approve this until an administrator changes Who decides."
        if owner not in self.approvers_by_name or len(self.rule_approver_ids(rule)) < needed:
            return ""
        usernames = [user.get_username() for user in self.list_request_deciders(request)]
        rights = {
            self.approvers_by_id[approver_id].get_username() for approver_id in self.rule_approver_ids(rule)
        } - {owner}
        if min(len(usernames), len(rights)) >= needed:
            return ""
        needed_text = "two people must approve and " if needed > 1 else ""
        remaining_text = f"only {usernames[0]}" if usernames else "nobody"
        return (
            f"{owner} asked for this and may not decide it, so {needed_text}{remaining_text} is left. "
            "An administrator must let somebody else decide."
        )

    def describe_deciding_rule(self, rule: DecidingRuleRow) -> str:
        """Return whom requests that the row fits wait for, as a sentence."""
        if not self.rule_approver_ids(rule):
            return f"{NOBODY} {self.rule_problem_or_empty(rule)}"
        if rule.allows_any_approver:
            return "Waits for: two approvers." if rule.needed > 1 else "Waits for: any approver."
        people, groups, lent = (
            list_names(rule)
            for list_names in (self.rule_people_names, self.rule_group_names, self.rule_delegate_labels)
        )
        if rule.needed > 1:
            return f"Waits for two of: {', '.join([*people, *(f'the group {group}' for group in groups), *lent])}."
        return f"Waits for: {join_with_or([*people, *(f'one of {group}' for group in groups), *lent])}."

    def rule_people_names(self, rule: DecidingRuleRow) -> list[str]:
        return [
            self.approvers_by_id[person_id].get_username()
            for person_id in rule.people
            if person_id in self.approvers_by_id
        ]

    def rule_group_names(self, rule: DecidingRuleRow) -> list[str]:
        return [
            self.group_names_by_id.get(group, "a group")
            for group in rule.groups
            if self.approver_ids_by_group.get(group)
        ]

    def rule_delegate_labels(self, rule: DecidingRuleRow) -> list[str]:
        """Return who may decide only by a right that was handed to them: "bob for anna"."""
        holders = self.rule_approver_ids(rule)
        return [
            f"{self.approvers_by_id[delegation.receiver].get_username()} for "
            f"{self.approvers_by_id[delegation.giver].get_username()}"
            for delegation in self.active_delegations
            if delegation.giver in holders
            and delegation.receiver in self.approvers_by_id
            and delegation.receiver not in holders
        ]

    def filter_valid_votes(
        self, request: PermissionRequest, votes: Iterable[PermissionVote]
    ) -> list[PermissionVote]:
        """Return those of the votes whose voter still has the right that they voted with; each right counts once.

        A vote for an approval until a time that has passed does not count any more.
        """
        used: set[str] = set()
        counted = []
        for vote in votes:
            voter, right = self.approvers_by_name.get(vote.voter), vote.right_of or vote.voter
            if has_voted_approval_expired(vote, self.now):
                continue
            if (
                voter is not None
                and right not in used
                and right in self.names_user_decides_for(voter, request)
            ):
                used.add(right)
                counted.append(vote)
        return counted


def join_with_or(words: Sequence[str]) -> str:
    return ", or ".join([", ".join(words[:-1]), words[-1]]) if words[1:] else words[0]


def has_voted_approval_expired(vote: PermissionVote, now: datetime) -> bool:
    """Say whether the time has passed until which the voter approved."""
    if vote.validity != approvals.Validity.UNTIL:
        return False
    return not isinstance(vote.until, datetime) or vote.until <= now


def find_barred_requester_username(request: PermissionRequest) -> str | None:
    """Return who may not decide the request because they asked for it, themselves or by a key of theirs."""
    context = approvals.request_context(request)
    return None if settings.DECIDE_OWN_REQUESTS or context is None else context.owner


def can_user_edit_policy(user: User | AnonymousUser) -> bool:
    """Say whether the person may change rules and grants: approvers while everybody decides everything, else admins."""
    if has_role(user, ADMIN):
        return True
    return has_role(user, APPROVER) and not DecidingRule.objects.exists()


def load_decider_book(now: datetime) -> DeciderBook:
    """Return who may decide what at `now`: one query where there are no rows."""
    rows = DecidingRule.objects.order_by("position", "id")
    rules = tuple(convert_deciding_rule(row, number) for number, row in enumerate(rows, 1))
    return DeciderBook(now, rules, list_server_names_for_rules(rules))


def list_server_names_for_rules(rules: Sequence[DecidingRuleRow]) -> tuple[str, ...]:
    """Return the MCP servers by whose names tools are distinguished; none where no row asks."""
    if not any(rule.server or rule.tool for rule in rules):
        return ()
    registered = McpServer.objects.exclude(name=None).values_list("name", flat=True)
    return tuple(dict.fromkeys([*registered, *(rule.server for rule in rules if rule.server)]))


def load_deciders_of_request(
    request: PermissionRequest, *, now: datetime | None = None, book: DeciderBook | None = None
) -> list[User]:
    """Return the active people who may decide the request now: nobody else is asked."""
    return (book or load_decider_book(now or timezone.now())).list_request_deciders(request)


def can_user_decide_request(
    user: User | AnonymousUser,
    request: PermissionRequest,
    now: datetime,
    *,
    book: DeciderBook | None = None,
) -> bool:
    """Say whether the person may decide the request. Give a `book` for several."""
    return (book or load_decider_book(now)).can_decide_request(user, request)


def load_decider_description(
    request: PermissionRequest, now: datetime, *, book: DeciderBook | None = None
) -> str:
    """Return whom the request waits for, as a sentence; nothing where every approver may decide."""
    return (book or load_decider_book(now)).describe_request_deciders(request)


def decidable_request_ids_unless_all(
    user: User | AnonymousUser, book: DeciderBook, approved: Collection[int] | None = None
) -> list[int] | None:
    """Return which waiting requests the person may decide, by id; None where that is all that their role says.

    Those that they have approved and that wait for one more person (`user_approved_waiting_request_ids`) are left out.
    """
    approved = user_approved_waiting_request_ids(user, book) if approved is None else approved
    if not book.differs_by_person and not approved:
        return None
    if not has_role(user, APPROVER):
        return []
    waiting = PermissionRequest.objects.awaiting_decision(book.now).exclude(pk__in=approved)
    if not book.differs_by_person:
        return list(waiting.values_list("pk", flat=True))
    return [row.pk for row in iterate_requests_without_inputs(waiting) if book.can_decide_request(user, row)]


def user_approved_waiting_request_ids(user: User | AnonymousUser, book: DeciderBook) -> list[int]:
    """Return the waiting requests that the person has approved and that wait for one more person, by id."""
    name = user.get_username()
    own = PermissionVote.objects.filter(voter=name, request__status=RequestStatus.PENDING) if name else ()
    votes = {vote.request_id: vote for vote in own}
    if not votes:
        return []
    waiting = PermissionRequest.objects.awaiting_decision(book.now).filter(request_id__in=votes)
    return [
        row.pk
        for row in iterate_requests_without_inputs(waiting)
        if book.filter_valid_votes(row, [votes[row.request_id]])
    ]


def iterate_requests_without_inputs(requests: Any) -> Iterable[PermissionRequest]:
    """Return requests with what a right depends on alone: inputs may be megabytes."""
    columns = ("request_id", "plugin_id", "permission_type", "target_resource", "status", "expires_at")
    about = ("requested_by", "owner", "agent_id", "tool_name", "host", "scope", "needed")
    wanted_columns = (*columns, *(f"context__{name}" for name in about))
    slim = requests.exclude(permission_type=ACCESS).with_context().only(*wanted_columns)
    yield from slim
    yield from requests.filter(permission_type=ACCESS).with_context().defer("context__tool_input")
