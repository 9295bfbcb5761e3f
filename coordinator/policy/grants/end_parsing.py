"""The ends of grants and approvals: the words that people may write, and the lengths that forms suggest.

DEFAULT holds for every grant whose maker chose no end: that of a form, of a suggestion, of "always allow this" and of
a list of an agent's servers. A grant that somebody asked for ends with its approval (actions.policy.access_requests).

The words are a small grammar rather than a library's guess: what could mean two things ("next Friday", "3/4",
"Friday" without a time) is refused, and a form shows the exact end before it is saved. It posts the end that it showed,
so that words such as "18:00" cannot come to mean tomorrow while the form is open.
"""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta, tzinfo

from coordinator.errors import UnprocessableRequest
from coordinator.lib import instants

NO_END = ""
DEFAULT = NO_END  # of a new grant: an end as people write it, or NO_END
RENEWAL = NO_END  # of a grant that is renewed: likewise
SUGGESTED_ENDS = ("1 hour", "2 hours", "8 hours", "tomorrow 9:00", "7 days", "30 days", "90 days", "no end")
QUICK_LENGTHS = ("1 hour", "2 hours", "8 hours", "7 days")
LONGEST_GRANT = timedelta(days=3653)  # ten years: what is meant to last longer has no end
MAX_END_CHARACTERS = 60

NO_END_WORDS = {NO_END, "no end", "never", "forever", "always", "until revoked"}
UNITS = {
    "minute": timedelta(minutes=1),
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "week": timedelta(weeks=1),
}
UNIT_WORDS = {
    spelling: name
    for name, spellings in {
        "minute": "m min mins minute minutes",
        "hour": "h hr hrs hour hours",
        "day": "d day days",
        "week": "w week weeks",
    }.items()
    for spelling in spellings.split()
}
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
LONG_MONTHS = (
    *("january", "february", "march", "april", "may", "june", "july"),
    *("august", "september", "october", "november", "december"),
)

_LENGTH_PART = re.compile(r"(\d{1,4}(?:\.\d{1,2})?|an?) ?([a-z]+)(?: and)? ?", re.ASCII)
_TIME = re.compile(r"(\d{1,2})(?:[:.](\d{2}))? ?(am|pm)?", re.ASCII)
_DAY_AND_TIME = re.compile(
    r"(?:(?P<day>\S.*?)(?: at)?[ t])?(?P<time>\d{1,2}[:.]\d{2}(?: ?[ap]m)?|\d{1,2} ?[ap]m)", re.ASCII
)
_OFFSET = re.compile(r"(?:Z|[+-]\d{2}:?\d{2})$", re.ASCII)
_ISO_DAY = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_NAMED_DAY = re.compile(
    r"(?:(\d{1,2})(?:st|nd|rd|th|\.)? ([a-z]+)|([a-z]+) (\d{1,2})(?:st|nd|rd|th)?)(?: (\d{4}))?", re.ASCII
)


def parse_optional_grant_end(
    text: str, now: datetime, zone: tzinfo = UTC, shown_end: str = ""
) -> datetime | None:
    """Return the end that a person wrote, as its clock has it in `zone`; None for a grant without an end.

    `shown_end` is what the form showed as the end (`serialize_shown_end`), empty where it showed none.

    Raises UnprocessableRequest for what is no end, has passed, is further away than LONGEST_GRANT, or means another
    end than the form showed. A length has no other end: it begins when it is sent.
    """
    words = normalize_end_text(text)
    if words in NO_END_WORDS:
        return None
    return parse_duration_or_moment_end(
        text,
        words,
        now,
        zone,
        "“2 hours”, “until Friday 18:00”, “2026-12-24 18:00” or “no end”",
        shown_end=shown_end,
    )


def parse_approval_end(text: str, now: datetime, zone: tzinfo = UTC, shown_end: str = "") -> datetime:
    """Return the end that a person wrote for an approval. It is written as that of a grant, but there must be one."""
    words = normalize_end_text(text)
    if not words:
        raise UnprocessableRequest(
            "Write when the approval ends, for example “2 hours” or “until Friday 18:00”."
        )
    return parse_duration_or_moment_end(
        text, words, now, zone, "“2 hours”, “until Friday 18:00” or “2026-12-24 18:00”", shown_end=shown_end
    )


def normalize_end_text(text: str) -> str:
    return " ".join(text[: MAX_END_CHARACTERS + 1].lower().replace(",", " ").split())


def serialize_shown_end(text: str, end: datetime) -> str:
    """Return the end that a form shows for the words `text`, with these words, as the form posts it."""
    return f"{end.isoformat()} {text}"


def parse_shown_end_or_none(shown_end: str, text: str) -> datetime | None:
    """Return the end that a form showed for `text`; None where it showed none, or one for other words."""
    instant, _, words = shown_end.partition(" ")
    return (
        instants.parse_instant_or_none(instant)
        if normalize_end_text(words) == normalize_end_text(text)
        else None
    )


def parse_duration_or_moment_end(
    text: str, words: str, now: datetime, zone: tzinfo, examples: str, *, shown_end: str
) -> datetime:
    """Return the end that `words` name, which are what `text` says, in lower case.

    Raises as `parse_optional_grant_end` does.
    """
    words = re.sub(r"^(for|until|till) ", "", words)
    length_end = parse_duration_end_or_none(words, now)
    end = (
        parse_instant_in_zone_or_none(text.strip(), zone)
        or length_end
        or parse_next_moment_or_none(words, now, zone)
    )
    if end is None or len(text) > MAX_END_CHARACTERS:
        raise UnprocessableRequest(
            f"“{text[:MAX_END_CHARACTERS]}” cannot be read as an end. Write for example {examples}."
        )
    if end <= now:
        raise UnprocessableRequest(f"“{text}” has passed.")
    if end - now > LONGEST_GRANT:
        raise UnprocessableRequest(f"“{text}” is more than ten years away.")
    earlier_end = parse_shown_end_or_none(shown_end, text)
    if earlier_end is not None and length_end is None and earlier_end != end:
        raise UnprocessableRequest(
            f"“{text}” does not mean the end any more that the form shows. By now it means "
            f"{end.astimezone(zone):%a %-d %b %Y, %H:%M}. Write the end again."
        )
    return end


def parse_instant_in_zone_or_none(text: str, zone: tzinfo) -> datetime | None:
    """Return the instant that `text` names; without an offset it is one of the clocks in `zone`."""
    instant = instants.parse_instant_or_none(text)
    if instant is None or _OFFSET.search(text):
        return instant
    try:
        return instant.replace(tzinfo=zone).astimezone(UTC)
    except OverflowError:  # the first and the last days that a calendar has
        return None


def parse_duration_end_or_none(words: str, now: datetime) -> datetime | None:
    """Return the end of a length such as `2 hours`, `90 min` or `1 day and 2 hours`; None where it is none."""
    position, length = 0, timedelta(0)
    while position < len(words):
        part = _LENGTH_PART.match(words, position)
        if part is None or part[2] not in UNIT_WORDS:
            return None
        length += (1.0 if part[1].startswith("a") else float(part[1])) * UNITS[UNIT_WORDS[part[2]]]
        position = part.end()
    return now + length


def parse_next_moment_or_none(words: str, now: datetime, zone: tzinfo) -> datetime | None:
    """Return the next moment that a day and a time name, or a time alone; None where they name none."""
    match = _DAY_AND_TIME.fullmatch(words)
    clock = time_of_day_or_none(match["time"]) if match else None
    if match is None or clock is None:
        return None
    today = now.astimezone(zone).date()
    days = (
        [today, today + timedelta(days=1)]
        if match["day"] is None
        else list_possible_dates(match["day"], today)
    )
    moments = []
    for day in days:
        try:
            moments += list_instants_of_clock_time(datetime.combine(day, clock, zone))
        except OverflowError:  # the first and the last days that a calendar has
            continue
    return next((moment for moment in moments if moment > now), moments[-1] if moments else None)


def list_instants_of_clock_time(local: datetime) -> list[datetime]:
    """Return the instant at which clocks show a time: two, the earlier first, where they are set back over it."""
    first, second = (local.replace(fold=fold).astimezone(UTC) for fold in (0, 1))
    return [first, second] if second > first else [first]


def time_of_day_or_none(text: str) -> time | None:
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    hour, minute = int(match[1]), int(match[2] or 0)
    if match[3]:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if match[3] == "pm" else 0)
    return time(hour, minute) if hour < 24 and minute < 60 else None


def list_possible_dates(words: str, today: date) -> list[date]:
    """Return the days that words may mean, the nearest first: a weekday also means the one in a week."""
    if words in ("today", "tomorrow"):
        return [today + timedelta(days=words == "tomorrow")]
    weekday = next((number for number, name in enumerate(WEEKDAYS) if words in (name, name[:3])), None)
    if weekday is not None:
        nearest = today + timedelta(days=(weekday - today.weekday()) % 7)
        return [nearest, nearest + timedelta(days=7)]
    try:
        return (
            [date.fromisoformat(words)]
            if _ISO_DAY.fullmatch(words)
            else list_possible_calendar_dates(words, today)
        )
    except ValueError:  # as the 30th of February
        return []


def list_possible_calendar_dates(words: str, today: date) -> list[date]:
    """Return the days that `24 Dec`, `December 24th` or `24 Dec 2027` may mean; of 29 February those that exist."""
    named = _NAMED_DAY.fullmatch(words)
    month_word = (named[2] or named[3]) if named else ""
    months = next((names for names in (MONTHS, LONG_MONTHS) if month_word in names), None)
    if named is None or months is None:
        return []
    years = [int(named[5])] if named[5] else [today.year, today.year + 1]
    dates = []
    for year in years:
        with suppress(ValueError):
            dates.append(date(year, months.index(month_word) + 1, int(named[1] or named[4])))
    return dates


def default_grant_end(now: datetime) -> datetime | None:
    """Return when a new grant ends for which nobody chose an end."""
    return parse_optional_grant_end(DEFAULT, now)
