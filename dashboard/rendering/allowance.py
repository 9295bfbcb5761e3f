"""The time that one page may wait for rendering of all its untrusted texts.

What is not ready by then is shown plain.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar
from typing import ParamSpec, TypeVar

from django.conf import settings
from django.http import HttpRequest, HttpResponse

P = ParamSpec("P")
T = TypeVar("T")


class RenderingAllowance:
    def __init__(self, seconds: float | None = None) -> None:
        self.left = settings.RENDERING_SECONDS if seconds is None else seconds

    def wait_for(self, future: Future[T]) -> T:
        """Return a future's result, and subtract the time spent on waiting.

        Raises TimeoutError when no time is left, and whatever the future raises.
        """
        started_at = time.monotonic()
        try:
            return future.result(max(0.0, self.left))
        finally:
            self.left -= time.monotonic() - started_at

    @contextmanager
    def share_allowance_in_block(self) -> Iterator[None]:
        """Make all rendering inside this block share the allowance."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)


_current: ContextVar[RenderingAllowance | None] = ContextVar("allowance", default=None)


def allowance_of_block_or_new() -> RenderingAllowance:
    """Return the allowance of the current block, or a new one outside such a block."""
    return _current.get() or RenderingAllowance()


def wrap_with_rendering_allowance(draw: Callable[P, T]) -> Callable[P, T]:
    """Return `draw` wrapped so that all texts of one call share an allowance."""

    def draw_within_allowance(*args: P.args, **kwargs: P.kwargs) -> T:
        with RenderingAllowance().share_allowance_in_block():
            return draw(*args, **kwargs)

    return draw_within_allowance


class PageAllowance:
    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.respond = wrap_with_rendering_allowance(get_response)

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.respond(request)
