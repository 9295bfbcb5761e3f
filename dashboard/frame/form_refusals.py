"""Shows the reason on a page when an action refuses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.contrib import messages
from django.http import Http404

from coordinator.errors import NotFound, SignalboxError
from dashboard.frame.htmx import HtmxHttpRequest


@contextmanager
def add_refusal_message_during_block(
    request: HtmxHttpRequest, *, missing_is_404: bool = False
) -> Iterator[None]:
    """Add the reason as a message if an action in the block raises SignalboxError, and leave the block.

    With `missing_is_404`, NotFound raises Http404 instead.
    """
    try:
        yield
    except SignalboxError as refusal:
        if missing_is_404 and isinstance(refusal, NotFound):
            raise Http404(str(refusal.detail)) from None
        messages.error(request, str(refusal.detail))
