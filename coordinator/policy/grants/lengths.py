"""How long grants are: the lengths that forms offer, DEFAULT for a new grant and RENEWAL for one that is renewed.

DEFAULT holds for every grant whose maker chose no end: that of a form, of a suggestion, of "always allow this" and of
a list of an agent's servers. A grant that somebody asked for ends with its approval (actions.access_requests).
"""

from __future__ import annotations

from datetime import datetime, timedelta

from coordinator.errors import UnprocessableRequest
from coordinator.lib import instants

LENGTHS = {
    "1h": ("1 hour", timedelta(hours=1)),
    "8h": ("8 hours", timedelta(hours=8)),
    "7d": ("7 days", timedelta(days=7)),
    "30d": ("30 days", timedelta(days=30)),
    "90d": ("90 days", timedelta(days=90)),
}
NO_END = ""
DEFAULT = NO_END  # of a new grant: a word of LENGTHS, or NO_END
RENEWAL = NO_END  # of a grant that is renewed: likewise


def grant_length_choices(selected: str) -> list[tuple[str, str, bool]]:
    """Return what a form offers: the word, what people read, and whether it is selected."""
    choice_labels = {NO_END: "No end"} | {word: label for word, (label, _length) in LENGTHS.items()}
    return [(word, label, word == selected) for word, label in choice_labels.items()]


def parse_grant_end(word: str, now: datetime) -> datetime | None:
    """Return the end that a person chose: a word of LENGTHS, or an instant. Raises UnprocessableRequest."""
    if word == NO_END:
        return None
    if word in LENGTHS:
        return now + LENGTHS[word][1]
    instant = instants.parse_instant(word)
    if instant is None:
        raise UnprocessableRequest(f"{word!r} is not one of the lengths of time offered here.")
    return instant


def default_grant_end(now: datetime) -> datetime | None:
    """Return when a new grant ends for which nobody chose an end."""
    return parse_grant_end(DEFAULT, now)
