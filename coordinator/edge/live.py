"""`GET /ui/live/`: a page's one stream of signals (what changed) and fragments (how it looks now)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from urllib.parse import parse_qs

import msgspec

from coordinator.edge.auth import Viewer
from coordinator.edge.channels import Frame
from coordinator.edge.fragments import Fragments
from coordinator.edge.hub import Topics
from coordinator.edge.streams import frame
from coordinator.errors import BadRequest, Forbidden
from coordinator.feed import Change
from coordinator.roles import ADMIN
from coordinator.triggers import TOLD

# Topics a page may listen to: all that the feed tells, some for people of a certain role alone.
FOR_SOME = {"api_keys": ADMIN, "users": ADMIN}
TOPICS: dict[str, str | None] = {told.topic: FOR_SOME.get(told.topic) for told in TOLD}
MOST_TOPICS = 20
MOST_REPLAYED = 5_000  # changes after which a page does better to load afresh
SIGNAL_PAUSE = 0.25  # seconds between signals of a busy page: the first goes at once, the rest together

encode = msgspec.json.Encoder().encode


def topics_of(query_string: bytes) -> frozenset[str]:
    """Return the topics that the query asks for. Raises BadRequest for none, too many or unknown ones."""
    words = " ".join(parse_qs(query_string.decode("latin-1"), encoding="utf-8").get("topics", [])).split()
    names = frozenset(words)
    if not names or len(names) > MOST_TOPICS:
        raise BadRequest(f"Name 1 to {MOST_TOPICS} topics, such as ?topics=sessions events:ses_123.")
    unknown = sorted(name for name in names if name.partition(":")[0] not in TOPICS)
    if unknown:
        raise BadRequest(f"There is no topic {unknown[0]!r}. Topics: {', '.join(TOPICS)}.")
    return names


def require_allowed(viewer: Viewer, names: frozenset[str]) -> None:
    """Raise Forbidden if one of the topics is not for this person."""
    for name in sorted(names):
        least = TOPICS[name.partition(":")[0]]
        if least is not None and not viewer.has_role(least):
            raise Forbidden(f"The topic {name} is for role {least}.")


def wants(names: frozenset[str]) -> Callable[[Change], bool]:
    """Return the test for changes that a page with these topics is told of."""
    return Topics(names).want


def joined(changes: Sequence[Change]) -> list[tuple[Change, int]]:
    """Return one change for each thing that changed, the last, with how many it stands for.

    Events are one thing per session: a page that shows a session asks once for all that is new.
    """
    last: dict[tuple[str, str | None], tuple[Change, int]] = {}
    for change in changes:
        thing = (change.topic, change.parent if change.topic == "events" else change.key)
        count = last[thing][1] + 1 if thing in last else 1
        last.pop(thing, None)  # so that the order stays that of the ids
        last[thing] = (change, count)
    return list(last.values())


def render(fragments: Fragments, changes: Sequence[Change]) -> list[Frame]:
    """Return signals, and before each its fragments, which have no id of their own. Runs in a thread."""
    told = joined(changes)
    # html[:] is a plain str: Django's SafeString is a subclass, which msgspec refuses.
    made = fragments.of(change for change, _ in told)
    frames = []
    for change, count in told:
        pieces = b"".join(
            b"event: fragment\ndata: %b\n\n"
            % encode({"target": piece.target, "swap": piece.swap, "html": piece.html[:]})
            for piece in made.get(change.id, ())
        )
        signal = frame(change.id, "", "signal", encode({**change._asdict(), "count": count}))
        frames.append(Frame(change.id, pieces + signal.data))
    return frames


def hello(upto: int) -> list[Frame]:
    """Return the frame that tells a new page where the feed stands."""
    return [frame(upto, "", "ready", b"{}")]
