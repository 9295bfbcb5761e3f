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
from coordinator.feed.reader import FeedChange
from coordinator.feed.triggers import FEED_TABLES
from coordinator.identity.roles import ADMIN
from coordinator.identity.viewers import Viewer
from coordinator.live.channels import EventFrame
from coordinator.live.fragments import VIEWS, Drawing, FragmentCache, LiveView
from coordinator.live.hub import WantedTopics
from coordinator.live.streams import build_sse_frame

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


def parse_requested_topics(query_string: bytes) -> frozenset[str]:
    """Return the topics that the query asks for. Raises BadRequest for none, too many or unknown ones."""
    topic_words = " ".join(
        parse_qs(query_string.decode("latin-1"), encoding="utf-8").get("topics", [])
    ).split()
    names = frozenset(topic_words)
    if not names or len(names) > MOST_TOPICS:
        raise BadRequest(f"Name 1 to {MOST_TOPICS} topics, such as ?topics=sessions events:ses_123.")
    unknown = sorted(
        name for name in expand_views_to_followed_topics(names) if name.partition(":")[0] not in TOPICS
    )
    if unknown:
        raise BadRequest(f"Unknown topic {unknown[0]!r}. Topics: {', '.join(TOPICS)}.")
    return names


def require_allowed_topics(viewer: Viewer, names: frozenset[str]) -> None:
    """Raise Forbidden if one of the topics is not for this person."""
    for name in sorted(expand_views_to_followed_topics(names)):
        least = TOPICS[name.partition(":")[0]]
        if least is not None and not viewer.has_role(least):
            raise Forbidden(f"The topic {name} needs the role {least}.")


def expand_views_to_followed_topics(names: Iterable[str]) -> frozenset[str]:
    """Return the topics of the feed that are meant: those which a view follows in place of the view."""
    name_list = list(names)
    followed_topics = [
        topic for view, key in find_requested_views(name_list) for topic in view.followed_topics(key)
    ]
    return frozenset(followed_topics) | frozenset(
        name for name in name_list if not find_requested_views([name])
    )


def find_requested_views(names: Iterable[str]) -> list[tuple[LiveView, str]]:
    """Return the views among `names`, each with the key of what it shows."""
    parts = (name.partition(":") for name in sorted(names))
    return [(VIEWS[view], key) for view, _, key in parts if view in VIEWS and key]


def seconds_between_page_redraws(names: Iterable[str]) -> float:
    """Return the seconds between two drawings of a page that follows these."""
    return BRISK_PAUSE if any(view.along for view, _ in find_requested_views(names)) else SIGNAL_PAUSE


def page_wanted_topics(names: frozenset[str]) -> WantedTopics:
    """Return the changes that a page with these topics receives."""
    return WantedTopics(expand_views_to_followed_topics(names))


def merge_feed_changes_by_subject(changes: Sequence[FeedChange]) -> list[tuple[FeedChange, int]]:
    """Return one change for each thing that changed, the last, with how many it stands for.

    Events are one thing per session: a page that shows a session asks once for all that is new.
    """
    last: dict[tuple[str, str | None], tuple[FeedChange, int]] = {}
    for change in changes:
        subject = (change.topic, change.parent if change.topic == "events" else change.key)
        count = last[subject][1] + 1 if subject in last else 1
        last.pop(subject, None)  # so that the order stays that of the ids
        last[subject] = (change, count)
    return list(last.values())


def render_page_frames(
    fragments: FragmentCache, names: frozenset[str], changes: Sequence[FeedChange]
) -> list[EventFrame]:
    """Return signals, and before each what it has drawn, which has no id of its own. Runs in a thread."""
    joined_changes = merge_feed_changes_by_subject(changes)
    # html[:] is a plain str: Django's SafeString is a subclass, which msgspec refuses.
    change_fragments = fragments.fragments_by_change(change for change, _ in joined_changes)
    drawn = dict(iterate_live_view_updates(names, changes))
    frames = []
    for change, count in joined_changes:
        pieces = b"".join(
            encode_event_without_id(
                "fragment", {"target": piece.target, "swap": piece.swap, "html": piece.html[:]}
            )
            for piece in change_fragments.get(change.id, ())
        )
        signal = build_sse_frame(change.id, "", "signal", encode({**change._asdict(), "count": count}))
        frames.append(EventFrame(change.id, drawn.get(change.id, b"") + pieces + signal.data))
    return frames


def iterate_live_view_updates(
    names: frozenset[str], changes: Sequence[FeedChange]
) -> Iterator[tuple[int, bytes]]:
    """Yield what views draw of the changes, each with the id of the last change that it shows."""
    last: dict[int, bytes] = {}
    for view, key in find_requested_views(names):
        followed_changes = [change for change in changes if view.is_view_affected_by_change(key, change)]
        if followed_changes:
            upto = followed_changes[-1].id
            last[upto] = last.get(upto, b"") + render_live_view_event(
                view, key, partial(view.draw_changes, key, followed_changes), upto
            )
    yield from last.items()


def render_view_summary_frames(
    fragments: FragmentCache, names: frozenset[str], changes: Sequence[FeedChange]
) -> list[EventFrame]:
    """Return the present summaries of the views whose things have changed. Runs in a thread."""
    upto = max(change.id for change in changes)
    frames = []
    for view, key in find_requested_views(names):
        last = max(
            (change.id for change in changes if view.is_change_about_view_key(key, change)), default=None
        )
        if last is not None and (
            drawing := render_live_view_event(
                view, key, partial(fragments.get_or_render_view_summary, view, key, last), last
            )
        ):
            frames.append(EventFrame(upto, drawing))
    return frames


def render_live_view_event(view: LiveView, key: str, draw: Callable[[], Drawing | None], upto: int) -> bytes:
    """Return a drawing as it is sent, nothing where there is none. Pages read for themselves what cannot be drawn."""
    try:
        drawing = draw()
    except DatabaseError:
        raise  # the channel tries again
    except Exception:
        log.exception("A view could not be drawn")
        drawing = {"failed": True}
    about = {"view": view.name, "key": key, "upto": upto}
    return b"" if drawing is None else encode_event_without_id("drawing", about | drawing)


def encode_event_without_id(event: str, data: dict[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event.encode(), encode(data))


def page_ready_frames(upto: int) -> list[EventFrame]:
    """Return the frame that gives a new page the feed's position."""
    return [build_sse_frame(upto, "", "ready", b"{}")]
