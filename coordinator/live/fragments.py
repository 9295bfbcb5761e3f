"""Pieces of pages that are sent down the live stream: rendered once per process, the same for every viewer.

The dashboard registers how each topic looks (DashboardConfig.ready); this package knows no HTML itself. A
fragment holds nothing per viewer: no CSRF token, no name, no time zone.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from django.db import DatabaseError

from coordinator.feed.reader import FeedChange

log = logging.getLogger(__name__)

REMEMBERED = 512  # changes whose fragments are kept for channels that ask a moment later
MAX_CACHED_SUMMARIES = 128  # views whose last summary is kept likewise


@dataclass(frozen=True, slots=True)
class PageFragment:
    """HTML for the element that the CSS selector `target` names; `swap` is an htmx swap style (`morph` too)."""

    target: str
    html: str
    swap: str = "morph"


# What a change of the topic does to pages; called in a thread, may query. Nothing to show: an empty list.
Renderer = Callable[[FeedChange], Sequence[PageFragment]]
_renderers: dict[str, list[Renderer]] = {}
# How something looks that sums a topic up, such as a number beside a label, as it stands now; called in a thread.
Summary = Callable[[], Sequence[PageFragment]]
_summaries: dict[str, list[Summary]] = {}


def register_fragment_renderer(topic: str, render: Renderer) -> None:
    """Have `render` called for the changes of `topic` that some open page listens to."""
    _renderers.setdefault(topic, []).append(render)


def register_topic_summary(topic: str, render: Summary) -> None:
    """Have `render` called once for all changes of `topic` that pages receive together."""
    _summaries.setdefault(topic, []).append(render)


Drawing = dict[str, Any]


@dataclass(frozen=True, slots=True)
class LiveView:
    """A part of a page that follows one thing, for all who look at it: a page asks for it as the topic `NAME:KEY`.

    It follows the changes of the topics in `about` whose key or parent is KEY, and all changes of those in
    `other_topics`. `draw_changes` draws what changes have added, `summary` what sums the thing up as it stands now;
    both are called in a thread, may query, and return what the page's script is told as JSON, or None for nothing.
    """

    name: str
    about: frozenset[str]
    other_topics: frozenset[str]
    draw_changes: Callable[[str, Sequence[FeedChange]], Drawing | None]
    summary: Callable[[str], Drawing | None]
    # As `about`, for what changes many times a second: it is drawn, and is no reason to sum up.
    along: frozenset[str] = frozenset()

    def followed_topics(self, key: str) -> Iterator[str]:
        """Yield the topics that the view of `key` follows."""
        yield from (f"{topic}:{key}" for topic in self.about | self.along)
        yield from self.other_topics

    def is_change_about_view_key(self, key: str, change: FeedChange) -> bool:
        """Say whether a change concerns the thing itself."""
        return change.topic in self.about and key in (change.key, change.parent)

    def is_view_affected_by_change(self, key: str, change: FeedChange) -> bool:
        """Say whether a change may add something to the view."""
        own = change.topic in self.along and key in (change.key, change.parent)
        return own or change.topic in self.other_topics or self.is_change_about_view_key(key, change)


VIEWS: dict[str, LiveView] = {}


def register_live_view(view: LiveView) -> None:
    VIEWS[view.name] = view


@dataclass(slots=True)
class LastViewSummary:
    """How a view was summed up last, and the change that it was drawn after."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    upto: int = -1
    drawing: Drawing | None = None


class FragmentCache:
    """The fragments of recent changes, each rendered once, however many channels show it. Used by threads."""

    def __init__(self) -> None:
        self._cached_fragments: OrderedDict[int, list[PageFragment]] = OrderedDict()
        self._summed: dict[str, tuple[int, list[PageFragment]]] = {}
        self._views: OrderedDict[tuple[str, str], LastViewSummary] = OrderedDict()

    def get_or_render_view_summary(self, view: LiveView, key: str, change_id: int) -> Drawing | None:
        """Return a view's summary as it stood at that change of it or, which is as right, at a later one."""
        last = self._views.setdefault((view.name, key), LastViewSummary())
        if len(self._views) > MAX_CACHED_SUMMARIES:
            self._views.popitem(last=False)
        with last.lock:  # channels ask at the same moment: the others wait for the first one's drawing
            if last.upto < change_id:
                last.drawing = view.summary(key)
                last.upto = change_id
            return last.drawing

    def fragments_by_change(self, changes: Iterable[FeedChange]) -> dict[int, list[PageFragment]]:
        """Return the fragments of those changes that have any, by change id; summaries with their topic's last."""
        changes = list(changes)
        own_fragments = {
            change.id: own for change in changes if (own := self._get_or_render_change_fragments(change))
        }
        for topic, change_id in {change.topic: change.id for change in changes}.items():
            if topic in _summaries:
                own_fragments[change_id] = [
                    *own_fragments.get(change_id, ()),
                    *self._get_or_render_summary_fragments(topic, change_id),
                ]
        return own_fragments

    def _get_or_render_summary_fragments(self, topic: str, change_id: int) -> list[PageFragment]:
        """Return the topic's summaries at that change, or at a later one, which is as good."""
        upto, summary = self._summed.get(topic, (-1, []))
        if upto < change_id:
            summary = [
                fragment for render in _summaries[topic] for fragment in render_fragments_or_empty(render)
            ]
            self._summed[topic] = (change_id, summary)
        return summary

    def _get_or_render_change_fragments(self, change: FeedChange) -> list[PageFragment]:
        renderers = _renderers.get(change.topic)
        if not renderers:
            return []
        rendered = self._cached_fragments.get(change.id)
        if rendered is None:
            rendered = [
                fragment
                for render in renderers
                for fragment in render_fragments_or_empty(partial(render, change))
            ]
            self._cached_fragments[change.id] = rendered
            while len(self._cached_fragments) > REMEMBERED:
                self._cached_fragments.popitem(last=False)
        return rendered


def render_fragments_or_empty(render: Summary) -> Sequence[PageFragment]:
    try:
        return render()
    except DatabaseError:
        raise  # the channel tries again
    except Exception:  # the signal still goes out, and the page can ask for itself
        log.exception("A fragment could not be rendered")
        return []
