"""What the person who looks at cards may decide of them, and whom the others wait for."""

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
    """The rights of one person, for as many requests as there are."""

    person: User | AnonymousUser
    book: DeciderBook

    @classmethod
    def load_rights_of_person(cls, person: User | AnonymousUser, now: datetime) -> Self:
        return cls(person, deciders.load_decider_book(now))

    @property
    def is_limited_approver(self) -> bool:
        """Say whether there are rows, so that not every approver may decide everything, and this person is one."""
        return bool(self.book.rules) and has_role(self.person, APPROVER)

    def find_decidable_request_ids(self) -> list[int] | None:
        """Return which waiting requests the inbox shows by default, by id; None for all."""
        if not has_role(self.person, APPROVER):
            return None
        return deciders.decidable_request_ids(
            self.person, self.book, self.request_ids_awaiting_second_approval
        )

    @cached_property
    def request_ids_awaiting_second_approval(self) -> list[int]:
        """Return which waiting requests this person has approved and that wait for one more person, by id."""
        return deciders.approved_waiting_request_ids(self.person, self.book)

    def has_person_voted_to_approve(self, votes: Iterable[PermissionVote]) -> bool:
        """Say whether one of the votes is this person's."""
        return any(vote.voter == self.person.get_username() for vote in votes)

    def explain_why_person_cannot_decide(self, row: PermissionRequest) -> str:
        """Say to the person why they may not decide; nothing where they may, or only read at all."""
        refusal = self.book.explain_cannot_decide(self.person, row)
        return "" if refusal == NO_ROLE else refusal

    @property
    def can_change_rules_and_grants(self) -> bool:
        """Say whether this person may change rules and grants, and so allow something for good."""
        return not self.book.rules or has_role(self.person, ADMIN)

    def describe_awaited_deciders(self, row: PermissionRequest) -> str:
        """Return whom it waits for, as a sentence; nothing where every approver may decide, also if two must."""
        rule = self.book.find_deciding_rule(row)
        is_open = rule is not None and rule.allows_any_approver and self.book.rule_approver_ids(rule)
        return "" if is_open else self.book.describe_request_deciders(row)

    def explain_missing_approvers(self, row: PermissionRequest) -> str:
        """Say, to administrators, why nobody can approve the request as rows stand; nothing to others."""
        rule = self.book.find_deciding_rule(row)
        return self.book.find_rule_problem(rule) if rule is not None and has_role(self.person, ADMIN) else ""

    def count_required_approvals(self, row: PermissionRequest) -> int:
        return self.book.required_approval_count(row)

    def select_counted_votes(
        self, row: PermissionRequest, votes: Iterable[PermissionVote]
    ) -> list[PermissionVote]:
        return self.book.filter_valid_votes(row, votes)
