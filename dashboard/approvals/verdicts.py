"""The form with which a person decides waiting requests, and the decision of each of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import Any

from django import forms
from django.contrib.auth.models import AnonymousUser, User
from django.utils import timezone

from coordinator.actions.approvals.triage import MOST_AT_ONCE
from coordinator.actions.sessions import tool_calls
from coordinator.actions.sessions.tool_calls import ApprovalAdditions
from coordinator.errors import BadRequest, SignalboxError, UnprocessableRequest
from coordinator.lib.storable import is_storable_text
from coordinator.models import PermissionRequest
from coordinator.models.permissions import RequestStatus
from coordinator.policy.grants.end_parsing import parse_approval_end
from coordinator.policy.requests.approvals import Scope, Validity
from dashboard.frame.days import find_zone_by_name

MOST_ON_A_CARD = 200
APPROVE_ONE = "approved-one"  # approve only the request that waits longest, of several equal calls
DENY_AND_STOP = "denied-turn-ended"  # a denial that also ends the agent's turn
NOT_SHOWN = "Nothing was approved: the form does not say what the page showed. Reload the page."
TOO_MANY = f"Choose at most {MOST_AT_ONCE} requests at once."  # for decisions only


class DecisionForm(forms.Form):
    """A person's decision about one or more waiting requests, and the digest of each that their card showed.

    `judged` has `DIGEST:ID` for each request (coordinator.policy.requests.judged_content.judged_card_digest).
    A text field counts as edited only if it differs from `edited_from`. The browser sends that back with the
    same changes to line breaks, so a text that merely passed through a browser does not count as edited.
    """

    ids = forms.MultipleChoiceField()
    judged = forms.MultipleChoiceField(required=False)
    verdict = forms.ChoiceField(
        choices=[
            ("approved", "Approve"),
            (APPROVE_ONE, "Approve one"),
            ("denied", "Deny"),
            (DENY_AND_STOP, "Deny and stop the turn"),
        ]
    )
    scope = forms.ChoiceField(choices=Scope.choices, required=False)
    validity = forms.ChoiceField(choices=Validity.choices, required=False)
    until = forms.CharField(
        required=False
    )  # as typed (coordinator.policy.grants.end_parsing), in the time zone `zone`
    zone = forms.CharField(required=False)
    shown_end = forms.CharField(required=False)  # what the form showed as the end; see serialize_shown_end
    reason = forms.CharField(max_length=2000, required=False)
    grant = forms.BooleanField(required=False)
    # What a person may add to a tool call's approval (templates/approvals/_tool_call.html).
    edited = forms.CharField(max_length=100_000, required=False, strip=False)
    edited_from = forms.CharField(max_length=100_000, required=False, strip=False)
    edited_field = forms.CharField(max_length=100, required=False)
    suggestion = forms.MultipleChoiceField(required=False)

    def __init__(self, data: object) -> None:
        super().__init__(data)  # type: ignore[arg-type]
        for name in ("ids", "judged", "suggestion"):
            sent_values = self.data.getlist(name)[:MOST_ON_A_CARD] if hasattr(self.data, "getlist") else []
            offered = [sent_value for sent_value in sent_values if is_storable_text(sent_value)]
            self.fields[name].choices = [(one, one) for one in offered]  # type: ignore[attr-defined]

    def clean(self) -> dict[str, Any]:
        """Add the requests to decide, the digest of each by its id, and the additions to the approval."""
        cleaned_data = self.cleaned_data
        cleaned_data["decides"] = cleaned_data.get("ids", [])
        if cleaned_data.get("verdict") == APPROVE_ONE:
            cleaned_data["verdict"] = "approved"
            cleaned_data["decides"] = select_longest_waiting_request(cleaned_data["decides"])
        cleaned_data["stops_turn"] = cleaned_data.get("verdict") == DENY_AND_STOP
        if cleaned_data["stops_turn"]:
            cleaned_data["verdict"] = "denied"
        cleaned_data["scope"] = Scope(cleaned_data.get("scope") or Scope.CALL)
        this_call = cleaned_data["scope"] is Scope.CALL
        cleaned_data["validity"] = (
            Validity.ONCE if this_call else Validity(cleaned_data.get("validity") or Validity.ONCE)
        )
        cleaned_data["end"] = None
        if cleaned_data.get("verdict") == "approved" and cleaned_data["validity"] is Validity.UNTIL:
            zone = find_zone_by_name(cleaned_data.get("zone", "")) or UTC
            try:
                cleaned_data["end"] = parse_approval_end(
                    cleaned_data.get("until", ""), timezone.now(), zone, cleaned_data.get("shown_end", "")
                )
            except UnprocessableRequest as refusal:
                self.add_error("until", str(refusal.detail))
        cleaned_data["seen"] = {
            name: seen_digest
            for seen_digest, _, name in (
                judged_text.partition(":") for judged_text in cleaned_data.get("judged", [])
            )
        }
        changed = "edited" in self.data and cleaned_data.get("edited") != cleaned_data.get("edited_from", "")
        cleaned_data["additions"] = ApprovalAdditions(
            cleaned_data.get("edited", "") if changed else None,
            cleaned_data.get("edited_field", ""),
            frozenset(cleaned_data.get("suggestion", [])),
        )
        return cleaned_data


def select_longest_waiting_request(ids: Sequence[str]) -> Sequence[str]:
    """Return the id of the request that waits longest, alone. A card may list the newest first."""
    oldest_first = PermissionRequest.objects.filter(request_id__in=ids).order_by("id")
    return list(oldest_first.values_list("request_id", flat=True)[:1]) or ids[:1]


@dataclass(frozen=True, slots=True)
class DecisionOutcome:
    """The outcome for each request, by its id.

    `decided` requests have a verdict. `voted` ones need a second person's approval. `refusals` has the reason
    for each request that was not decided.
    """

    decided: Mapping[str, PermissionRequest]
    voted: Mapping[str, PermissionRequest]
    refusals: Mapping[str, str]


def decide_each_request(form: Mapping[str, Any], user: User | AnonymousUser) -> DecisionOutcome:
    """Decide each request of a cleaned `DecisionForm`. A refusal does not stop the others."""
    decided: dict[str, PermissionRequest] = {}
    voted: dict[str, PermissionRequest] = {}
    refusals: dict[str, str] = {}
    for request_id in form["decides"]:
        try:
            row = decide_one_request(request_id, form, user)
        except SignalboxError as refusal:
            refusals[request_id] = str(refusal.detail)
        else:
            (voted if row.status == RequestStatus.PENDING else decided)[request_id] = row
    return DecisionOutcome(decided, voted, refusals)


def decide_one_request(
    request_id: str, form: Mapping[str, Any], user: User | AnonymousUser
) -> PermissionRequest:
    approves = form["verdict"] == "approved"
    if approves and request_id not in form["seen"]:
        raise BadRequest(NOT_SHOWN)
    return tool_calls.decide_call_with_additions(
        request_id,
        person=user,
        verdict=form["verdict"],
        reason=form["reason"],
        validity=form["validity"],
        until=form["end"],
        scope=form["scope"],
        judged=form["seen"].get(request_id),
        grant=form["grant"] and approves,
        additions=form["additions"],
        stops_turn=form["stops_turn"],
    )


def parse_chosen_request_digests(values: Iterable[str], *, most: int = MOST_AT_ONCE) -> dict[str, str]:
    """Return the digest of each chosen request, by its id.

    `values` are those of the cards' checkboxes (`ApprovalCard.decidable_requests_as_json`). Raises BadRequest if one is
    unreadable, if nothing is chosen, or if more than `most` requests are.
    """
    digests_by_id: dict[str, str] = {}
    for value in values:
        try:
            pairs = [chosen_text.partition(":") for chosen_text in json.loads(value)]
        except (ValueError, TypeError, AttributeError, RecursionError):
            raise BadRequest("The choice could not be read. Reload the page.") from None
        # An id that the database cannot store belongs to no request.
        digests_by_id |= {name: seen_digest for seen_digest, _, name in pairs if is_storable_text(name)}
        if len(digests_by_id) > most:
            raise BadRequest(f"Choose at most {most:,} requests at once.")
    if not digests_by_id:
        raise BadRequest("Choose at least one request.")
    return digests_by_id
