"""For how long a grant may be given, as forms offer it, and which of them is selected: DEFAULT."""

from __future__ import annotations

from datetime import datetime, timedelta

from coordinator.errors import Invalid
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
# As forms offer them: the word, what people read, and whether it is selected.
CHOICES = tuple(
    (word, label, word == DEFAULT)
    for word, label in ((NO_END, "No end"), *((word, label) for word, (label, _length) in LENGTHS.items()))
)


def until_of(word: str, now: datetime) -> datetime | None:
    """Return the end that a person chose: a word of LENGTHS, or an instant. Raises Invalid."""
    if word == NO_END:
        return None
    if word in LENGTHS:
        return now + LENGTHS[word][1]
    found = instants.parse(word)
    if found is None:
        raise Invalid(f"{word!r} is not one of the lengths of time offered here.")
    return found
