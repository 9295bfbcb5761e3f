"""A preview of who would decide a request, from the saved rows, as decisions are enforced."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.conf import settings

from coordinator.policy.deciders.decider_book import DeciderBook, list_server_names_for_rules
from coordinator.policy.deciders.rules import TERMS, DecidingRuleRow, build_request_terms


@dataclass(frozen=True, slots=True)
class DeciderPreview:
    """Who would decide: the matching row (None if no row matches), its description, and the people now."""

    terms: Mapping[str, str]
    rule: DecidingRuleRow | None
    words: str
    people: list[str]
    needed: int
    trouble: str


def preview_deciders(question: Mapping[str, Any], book: DeciderBook) -> DeciderPreview | None:
    """Return who would decide a request with the terms in `question`; None if it has no terms."""
    term_texts = {name: str(question.get(name, "")).replace("\0", "").strip()[:500] for name in TERMS}
    if not any(term_texts.values()):
        return None
    request_terms = build_request_terms(
        term_texts["permission_type"],
        tool=term_texts["tool"],
        server=term_texts["server"],
        agents={term_texts["agent"]},
        host=term_texts["host"],
        known_names=book.servers or list_server_names_for_rules(book.rules),
    )
    rule = book.find_rule_matching_terms(request_terms)
    two = 2 if term_texts["permission_type"] in settings.TWO_PERSON_TYPES else 1
    return DeciderPreview(
        term_texts,
        rule,
        book.describe_deciding_rule(rule) if rule else "No row matches: every approver may decide.",
        book.list_labels_of_current_deciders(rule),
        max(two, rule.needed if rule else 1),
        book.rule_problem_or_empty(rule, two) if rule else "",
    )
