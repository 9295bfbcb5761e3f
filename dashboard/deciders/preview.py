"""Who would decide a request with these words, and why: as decisions are enforced, tried on the saved rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.conf import settings

from coordinator.policy.deciders import DeciderBook, known_servers
from coordinator.policy.deciding_rules import TERMS, Rule, terms


@dataclass(frozen=True, slots=True)
class Preview:
    """The answer: the row that fits (None: no row), whom it leaves the request to, and who that is now."""

    asked: Mapping[str, str]
    rule: Rule | None
    words: str
    people: list[str]
    needed: int
    trouble: str


def preview_of(asked: Mapping[str, Any], book: DeciderBook) -> Preview | None:
    """Return who would decide; None where nothing is asked."""
    words = {name: str(asked.get(name, "")).replace("\0", "").strip()[:500] for name in TERMS}
    if not any(words.values()):
        return None
    wanted = terms(
        words["permission_type"],
        tool=words["tool"],
        server=words["server"],
        agents={words["agent"]},
        host=words["host"],
        known=book.servers or known_servers(book.rules),
    )
    rule = book.rule_of_terms(wanted)
    two = 2 if words["permission_type"] in settings.TWO_PERSON_TYPES else 1
    return Preview(
        words,
        rule,
        book.words(rule) if rule else "No row matches: every approver may decide.",
        book.names_for(rule),
        max(two, rule.needed if rule else 1),
        book.trouble(rule) if rule else "",
    )
