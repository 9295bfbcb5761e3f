"""What can go wrong on purpose: actions raise these, endpoints turn them into answers.

Every endpoint answers with `status` and `{"detail": detail}` (REST and edge) or shows `detail` (pages).
"""

from __future__ import annotations

from typing import Any


class SignalboxError(Exception):
    """Base of all expected errors. `detail` is a sentence, or the object a recorded client expects."""

    status = 400
    not_sent = False  # whether the MCP gateway is certain that no server has heard of the request

    def __init__(self, detail: Any, *, retry_after: int | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.retry_after = retry_after


class BadRequest(SignalboxError):
    """The request contradicts itself or the state it names."""

    status = 400


class Unauthorized(SignalboxError):
    """Nobody, or an unknown, expired or revoked key."""

    status = 401


class Forbidden(SignalboxError):
    """Somebody known who may not do this."""

    status = 403


class NotFound(SignalboxError):
    """No such row, or none that the asker may see."""

    status = 404


class RequestTimedOut(SignalboxError):
    """A request that did not arrive whole in the time there is for it."""

    status = 408


class Conflict(SignalboxError):
    """Somebody else was first, or the row has moved on since it was read."""

    status = 409


class RequestTooLarge(SignalboxError):
    status = 413


class UnsupportedMediaType(SignalboxError):
    """A body in a form that this endpoint does not read."""

    status = 415


class UnprocessableRequest(SignalboxError):
    """A body that can be read but not accepted."""

    status = 422


class TooManyRequests(SignalboxError):
    """Over a rate limit; `retry_after` says in how many seconds to come back."""

    status = 429


class QuotaReached(TooManyRequests):
    """The key has stored as much as it may today."""


class StoredDataCorrupt(SignalboxError):
    """What is stored is not what was stored once."""

    status = 502


class ServiceBusy(SignalboxError):
    """The database is locked, a disk is full or a queue is; nothing was written; `retry_after` in seconds."""

    status = 503


class ServiceRestarting(ServiceBusy):
    """This process is stopping; another one answers who comes back."""
