"""Pieces of pages that are sent down the live stream: rendered once per process, the same for every viewer.

The dashboard registers how each topic looks (DashboardConfig.ready); this package knows no HTML itself. A
fragment holds nothing per viewer: no CSRF token, no name, no time zone (design §4).
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from django.db import DatabaseError

from coordinator.feed import Change

log = logging.getLogger(__name__)

REMEMBERED = 512  # changes whose fragments are kept for channels that ask a moment later


@dataclass(frozen=True, slots=True)
class Fragment:
    """HTML for the element that the CSS selector `target` names; `swap` is an htmx swap style (`morph` too)."""

    target: str
    html: str
    swap: str = "morph"


# What a change of the topic does to pages; called in a thread, may query. Nothing to show: an empty list.
Renderer = Callable[[Change], Sequence[Fragment]]
_renderers: dict[str, list[Renderer]] = {}


def register(topic: str, render: Renderer) -> None:
    """Have `render` called for the changes of `topic` that some open page listens to."""
    _renderers.setdefault(topic, []).append(render)


def topics() -> frozenset[str]:
    """Return the topics that have fragments."""
    return frozenset(_renderers)


class Fragments:
    """The fragments of recent changes, each rendered once, however many channels show it. Used by threads."""

    def __init__(self) -> None:
        self._made: OrderedDict[int, list[Fragment]] = OrderedDict()

    def of(self, changes: Iterable[Change]) -> dict[int, list[Fragment]]:
        """Return the fragments of those changes that have any, by change id."""
        return {change.id: made for change in changes if (made := self._of(change))}

    def _of(self, change: Change) -> list[Fragment]:
        renderers = _renderers.get(change.topic)
        if not renderers:
            return []
        made = self._made.get(change.id)
        if made is None:
            made = [fragment for render in renderers for fragment in _rendered(render, change)]
            self._made[change.id] = made
            while len(self._made) > REMEMBERED:
                self._made.popitem(last=False)
        return made


def _rendered(render: Renderer, change: Change) -> Sequence[Fragment]:
    try:
        return render(change)
    except DatabaseError:
        raise  # the channel tries again
    except Exception:  # the signal still goes out, and the page can ask for itself
        log.exception("A fragment of %s could not be rendered", change.topic)
        return []
