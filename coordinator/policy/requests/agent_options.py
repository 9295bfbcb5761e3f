"""The answers that a driven agent offers for its own question: which of them says what a person, or a rule, decided."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from coordinator.models import PermissionRequest

PERMISSION_METHOD = "session/request_permission"  # what the metadata of such a request call the hook
MOST_OPTIONS = 20

Option = Mapping[str, Any]
Outcome = dict[str, Any]
CANCELLED: Outcome = {"cancelled": True}
ONLY_LASTING = (
    "It was approved for this once, and the agent offers no such answer: only one that lets more calls run."
    " Ask in smaller steps, or have a person choose the lasting answer."
)


def parse_agent_answer_options(options: Any) -> list[dict[str, str]]:
    """Return the options that can be shown and chosen: each with `optionId`, `name` and `kind`, all texts.

    Left out are those that share their id with another: which of them was chosen would be ambiguous.
    """
    request_options = []
    for option_entry in options[:MOST_OPTIONS] if isinstance(options, list) else []:
        if isinstance(option_entry, dict) and isinstance(option_entry.get("optionId"), str):
            name, kind = option_entry.get("name"), option_entry.get("kind")
            request_options.append(
                {
                    "optionId": option_entry["optionId"],
                    "name": name if isinstance(name, str) and name.strip() else option_entry["optionId"],
                    "kind": kind if isinstance(kind, str) else "",
                }
            )
    times = Counter(option["optionId"] for option in request_options)
    return [option for option in request_options if times[option["optionId"]] == 1]


def is_driven_agent_request(row: PermissionRequest) -> bool:
    """Say whether a driven agent asks, through its runner."""
    return isinstance(row.metadata, dict) and row.metadata.get("hook") == PERMISSION_METHOD


def find_options_allowing_later_calls(options: Sequence[Option]) -> list[Option]:
    """Return the options that let more than this call run: they are offered in addition to a plain yes."""
    return [option for option in options if option.get("kind") == "allow_always"]


def build_allow_outcome_or_cancel(options: Sequence[Option], picked: Sequence[Option] = ()) -> Outcome:
    """Return the agent's own yes: the one that was picked, else the one for this call alone.

    A plain yes is never one that lasts: where the agent offers no other, the question is called off, with `why`.
    """
    chosen = next((option for option in picked if option.get("optionId")), None)
    if chosen is not None:
        return build_selected_option_outcome(chosen)
    outcome = first_outcome_of_kinds_or_cancel(options, "allow_once")
    return (
        {**CANCELLED, "why": ONLY_LASTING}
        if outcome == CANCELLED and find_options_allowing_later_calls(options)
        else outcome
    )


def build_reject_outcome_or_cancel(options: Sequence[Option]) -> Outcome:
    """Return the agent's own no; where it offers none, the question is called off."""
    return first_outcome_of_kinds_or_cancel(options, "reject_once", "reject_always")


def build_chosen_outcome_or_cancel(options: Sequence[Option], option_id: Any) -> Outcome:
    """Return the option that a person chose by its name; where the agent offers it no more, the question is off."""
    chosen = next((option for option in options if option.get("optionId") == option_id), None)
    return CANCELLED if chosen is None else build_selected_option_outcome(chosen)


def has_ambiguous_options(options: Sequence[Option]) -> bool:
    """Say whether a plain yes or no would have to choose between several options: those are chosen by name."""
    kinds = [option.get("kind") for option in options]
    known_kinds = {"allow_once", "allow_always", "reject_once", "reject_always"}
    return (
        kinds.count("allow_once") > 1 or kinds.count("reject_once") > 1 or not known_kinds.issuperset(kinds)
    )


def first_outcome_of_kinds_or_cancel(options: Sequence[Option], *kinds: str) -> Outcome:
    for kind in kinds:
        for option in options:
            if option.get("kind") == kind:
                return build_selected_option_outcome(option)
    return CANCELLED


def build_selected_option_outcome(option: Option) -> Outcome:
    return {"optionId": option["optionId"]}
