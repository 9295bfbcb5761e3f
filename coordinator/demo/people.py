"""The demo's people: made-up names that answer the demo's own fleet, so that it goes on.

They are no accounts, and nobody else's question is ever theirs: only requests that this fleet's own keys asked, in a
database that the demo filled while it was empty and has to itself (fill.why_not_the_demos_own, asked at each look). As
soon as anybody else's key or session is there, they stop for good. They are one program: what takes two people waits
for real ones, and so does what would make a grant. Whoever looks at the demo may be faster.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from random import Random
from threading import Event

from django.db import DatabaseError, connection
from django.utils import timezone

from coordinator.actions import approvals
from coordinator.demo.cast import PEOPLE
from coordinator.demo.fill import build_unsaved_decider, explain_why_demo_may_not_decide
from coordinator.errors import SignalboxError
from coordinator.identity.actors import key_actor_by_name
from coordinator.models import PermissionRequest
from coordinator.policy.grants.access_requests import PERMISSION_TYPE as ACCESS
from coordinator.policy.requests import approvals as rules
from coordinator.policy.requests.judged_content import judged_card_digest
from coordinator.policy.requests.question_requests import is_question_request

LOOK_EVERY = 2.0  # seconds
VIEWER_WAIT_SECONDS = (25.0, 120.0)  # a question waits for whoever looks at the demo, between these
AT_ONCE = 20  # questions that they look at
YES = 0.85
REASONS = {
    "approved": ("Looks right.", "Checked the diff.", None, None),
    "denied": ("Not before the freeze is over.", "Wrong branch.", "Ask the team that owns it first."),
}

log = logging.getLogger(__name__)


class ForeignDataPresent(Exception):
    """The database is not the demo's own, or not any more; the words say why."""


@dataclass(slots=True)
class DemoPeople:
    """Who answers the questions that the keys of these names asked. `say` tells whoever runs the demo why they stop."""

    key_names: Collection[str]
    over: Event
    say: Callable[[str], object] = log.warning
    dice: Random = field(default_factory=Random)
    due: dict[str, datetime] = field(default_factory=dict)

    def answer_requests_until_over(self) -> None:
        """Look at the inbox now and then until the demo is over, or the database is not its own any more."""
        while not self.over.wait(LOOK_EVERY):
            try:
                self.answer_due_requests(timezone.now())
            except ForeignDataPresent as foreign_data:
                self.say(f"The demo's people stop answering: {foreign_data}.")
                return
            except DatabaseError as problem:  # busy, or away for a restart
                log.warning("The demo's people cannot read the inbox: %s", str(problem).strip())
            finally:
                connection.close()

    def answer_due_requests(self, now: datetime) -> int:
        """Answer what has waited long enough; return how many were. Raises ForeignDataPresent."""
        if foreign_data := explain_why_demo_may_not_decide():
            raise ForeignDataPresent(foreign_data)
        requester_ids = [str(key_actor_by_name(name)) for name in self.key_names]
        waiting = (
            PermissionRequest.objects.with_context()
            .awaiting_decision(now)
            .filter(context__requested_by__in=requester_ids)
        )
        due_requests = list(islice(filter(can_demo_people_decide, waiting.order_by("id")), AT_ONCE))
        self.due = {
            row.request_id: self.due.get(row.request_id)
            or now + timedelta(seconds=self.dice.uniform(*VIEWER_WAIT_SECONDS))
            for row in due_requests
        }
        return sum(
            self.decide_demo_request(row, now) for row in due_requests if self.due[row.request_id] <= now
        )

    def decide_demo_request(self, row: PermissionRequest, now: datetime) -> bool:
        """Approve or deny as one of PEOPLE; say whether that was still to be decided."""
        verdict = "approved" if self.dice.random() < YES else "denied"
        try:
            approvals.decide_request(
                row.request_id,
                person=build_unsaved_decider(self.dice.choice(PEOPLE)),
                verdict="approved" if verdict == "approved" else "denied",
                reason=self.dice.choice(REASONS[verdict]),
                judged=judged_card_digest(row),
                now=now,
            )
        except SignalboxError:  # somebody was faster, or it was withdrawn
            return False
        return True


def can_demo_people_decide(row: PermissionRequest) -> bool:
    """Say whether one made-up person may decide this: not what takes two, makes a grant or is a question."""
    is_answered = is_question_request(row)
    return rules.required_approver_count(row) == 1 and row.permission_type != ACCESS and not is_answered
