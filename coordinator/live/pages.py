"""`GET /ui/live/`: a page's one stream of signals (what changed), fragments and views (how it looks now)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any
from urllib.parse import parse_qs

import msgspec
from django.db import DatabaseError

from coordinator.errors import BadRequest, Forbidden
from coordinator.feed.reader import Change
from coordinator.feed.triggers import FEED_TABLES
from coordinator.identity.roles import ADMIN
from coordinator.identity.viewers import Viewer
from coordinator.live.channels import Frame
from coordinator.live.fragments import VIEWS, Drawing, Fragments, View
from coordinator.live.hub import Topics
from coordinator.live.streams import frame

# Topics a page may listen to: all that the feed tells, some for people of a certain role alone.
FOR_SOME = {"api_keys": ADMIN, "users": ADMIN}
TOPICS: dict[str, str | None] = {table.topic: FOR_SOME.get(table.topic) for table in FEED_TABLES}
MOST_TOPICS = 32  # a page names up to a dozen of its own, and 16 sessions that it lists
MOST_REPLAYED = 5_000  # changes after which a page does better to load afresh
SIGNAL_PAUSE = 0.25  # seconds between signals of a busy page: the first goes at once, the rest together

BRISK_PAUSE = 0.06  # where a page shows what is being said

log = logging.getLogger(__name__)

SUMMARY_PAUSE = 2.0  # seconds between summaries of what goes on changing

encode = msgspec.json.Encoder(enc_hook=str).encode


def topics_of(query_string: bytes) -> frozenset[str]:
    """Return the topics that the query asks for. Raises BadRequest for none, too many or unknown ones."""
    words = " ".join(parse_qs(query_string.decode("latin-1"), encoding="utf-8").get("topics", [])).split()
    names = frozenset(words)
    if not names or len(names) > MOST_TOPICS:
        raise BadRequest(f"Name 1 to {MOST_TOPICS} topics, such as ?topics=sessions events:ses_123.")
    unknown = sorted(name for name in followed(names) if name.partition(":")[0] not in TOPICS)
    if unknown:
        raise BadRequest(f"Unknown topic {unknown[0]!r}. Topics: {', '.join(TOPICS)}.")
    return names


def require_allowed(viewer: Viewer, names: frozenset[str]) -> None:
    """Raise Forbidden if one of the topics is not for this person."""
    for name in sorted(followed(names)):
        least = TOPICS[name.partition(":")[0]]
        if least is not None and not viewer.has_role(least):
            raise Forbidden(f"The topic {name} needs the role {least}.")


def followed(names: Iterable[str]) -> frozenset[str]:
    """Return the topics of the feed that are meant: those which a view follows in place of the view."""
    named = list(names)
    shown = [topic for view, key in views(named) for topic in view.topics(key)]
    return frozenset(shown) | frozenset(name for name in named if not views([name]))


def views(names: Iterable[str]) -> list[tuple[View, str]]:
    """Return the views among `names`, each with the key of what it shows."""
    parts = (name.partition(":") for name in sorted(names))
    return [(VIEWS[view], key) for view, _, key in parts if view in VIEWS and key]


def pause(names: Iterable[str]) -> float:
    """Return the seconds between two drawings of a page that follows these."""
    return BRISK_PAUSE if any(view.along for view, _ in views(names)) else SIGNAL_PAUSE


def wants(names: frozenset[str]) -> Topics:
    """Return the changes that a page with these topics receives."""
    return Topics(followed(names))


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


def render(fragments: Fragments, names: frozenset[str], changes: Sequence[Change]) -> list[Frame]:
    """Return signals, and before each what it has drawn, which has no id of its own. Runs in a thread."""
    told = joined(changes)
    # html[:] is a plain str: Django's SafeString is a subclass, which msgspec refuses.
    made = fragments.of(change for change, _ in told)
    drawn = dict(_news(names, changes))
    frames = []
    for change, count in told:
        pieces = b"".join(
            _piece("fragment", {"target": piece.target, "swap": piece.swap, "html": piece.html[:]})
            for piece in made.get(change.id, ())
        )
        signal = frame(change.id, "", "signal", encode({**change._asdict(), "count": count}))
        frames.append(Frame(change.id, drawn.get(change.id, b"") + pieces + signal.data))
    return frames


def _news(names: frozenset[str], changes: Sequence[Change]) -> Iterator[tuple[int, bytes]]:
    """Yield what views draw of the changes, each with the id of the last change that it shows."""
    last: dict[int, bytes] = {}
    for view, key in views(names):
        wanted = [change for change in changes if view.follows(key, change)]
        if wanted:
            upto = wanted[-1].id
            last[upto] = last.get(upto, b"") + _drawn(view, key, partial(view.news, key, wanted), upto)
    yield from last.items()


def sum_up(fragments: Fragments, names: frozenset[str], changes: Sequence[Change]) -> list[Frame]:
    """Return the present summaries of the views whose things have changed. Runs in a thread."""
    upto = max(change.id for change in changes)
    frames = []
    for view, key in views(names):
        last = max((change.id for change in changes if view.is_about(key, change)), default=None)
        if last is not None and (
            drawing := _drawn(view, key, partial(fragments.summary_of, view, key, last), last)
        ):
            frames.append(Frame(upto, drawing))
    return frames


def _drawn(view: View, key: str, draw: Callable[[], Drawing | None], upto: int) -> bytes:
    """Return a drawing as it is sent, nothing where there is none. Pages read for themselves what cannot be drawn."""
    try:
        drawing = draw()
    except DatabaseError:
        raise  # the channel tries again
    except Exception:
        log.exception("A view could not be drawn")
        drawing = {"failed": True}
    about = {"view": view.name, "key": key, "upto": upto}
    return b"" if drawing is None else _piece("drawing", about | drawing)


def _piece(event: str, data: dict[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event.encode(), encode(data))


def hello(upto: int) -> list[Frame]:
    """Return the frame that gives a new page the feed's position."""
    return [frame(upto, "", "ready", b"{}")]
