"""Which requests the person who views cards may decide, and whom the other requests wait for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Self

from django.contrib.auth.models import AnonymousUser, User

from coordinator.identity.roles import ADMIN, APPROVER, has_role
from coordinator.models import PermissionRequest, PermissionVote
from coordinator.policy.deciders import decider_book as deciders
from coordinator.policy.deciders.decider_book import NO_ROLE, DeciderBook


@dataclass(frozen=True)
class DecisionRights:
    """The rights of one person to decide requests, under the current rows of Who decides."""

    person: User | AnonymousUser
    book: DeciderBook

    @classmethod
    def load_rights_of_person(cls, person: User | AnonymousUser, now: datetime) -> Self:
        return cls(person, deciders.load_decider_book(now))

    @property
    def is_limited_approver(self) -> bool:
        """Return whether the person is an approver whose decisions are limited: by rows, or to requests of others."""
        return self.book.differs_by_person and has_role(self.person, APPROVER)

    def inbox_request_ids_unless_all(self) -> list[int] | None:
        """Return the ids of the waiting requests that the inbox shows by default; None for all."""
        if not has_role(self.person, APPROVER):
            return None
        return deciders.decidable_request_ids_unless_all(
            self.person, self.book, self.own_approved_request_ids_awaiting_second
        )

    @cached_property
    def own_approved_request_ids_awaiting_second(self) -> list[int]:
        """Return the ids of waiting requests that this person approved and that need a second approval."""
        return deciders.user_approved_waiting_request_ids(self.person, self.book)

    def has_person_voted_to_approve(self, votes: Iterable[PermissionVote]) -> bool:
        """Return whether one of the votes is this person's."""
        return any(vote.voter == self.person.get_username() for vote in votes)

    def explain_why_person_cannot_decide(self, row: PermissionRequest) -> str:
        """Return why the person may not decide the request.

        Empty if they may, or if they lack the role approver, which the page says anyway.
        """
        refusal = self.book.cannot_decide_reason_or_empty(self.person, row)
        return "" if refusal == NO_ROLE else refusal

    @property
    def can_change_rules_and_grants(self) -> bool:
        """Return whether this person may change rules and grants, and so permit calls permanently."""
        return not self.book.rules or has_role(self.person, ADMIN)

    def describe_awaited_deciders(self, row: PermissionRequest) -> str:
        """Return whom the request waits for, in words; empty if every approver may decide and enough are left."""
        rule = self.book.find_deciding_rule(row)
        is_open = rule is not None and rule.allows_any_approver and self.book.rule_approver_ids(rule)
        return (
            self.book.describe_shortage_of_deciders(row)
            if is_open
            else self.book.describe_request_deciders(row)
        )

    def missing_approvers_explanation_or_empty(self, row: PermissionRequest) -> str:
        """Return, for administrators, why nobody can approve the request under the current rows.

        Empty if somebody can, and for other people.
        """
        rule = self.book.find_deciding_rule(row)
        return (
            self.book.rule_problem_or_empty(rule, self.count_required_approvals(row))
            if rule is not None and has_role(self.person, ADMIN)
            else ""
        )

    def count_required_approvals(self, row: PermissionRequest) -> int:
        return self.book.required_approval_count(row)

    def select_counted_votes(
        self, row: PermissionRequest, votes: Iterable[PermissionVote]
    ) -> list[PermissionVote]:
        return self.book.filter_valid_votes(row, votes)
