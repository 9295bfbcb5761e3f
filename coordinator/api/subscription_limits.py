"""Agents' reports of how full the limits of subscriptions are."""

from __future__ import annotations

from typing import Annotated

from django.http import HttpRequest
from django.utils import timezone
from ninja import Schema
from pydantic import Field

from coordinator.actions.usage import limits
from coordinator.actions.usage.limits import LimitReading
from coordinator.api.auth import build_scoped_key_auth
from coordinator.api.router import Router
from coordinator.api.shared_types import Ok, Text, error_responses
from coordinator.lib import instants
from coordinator.models import SubscriptionLimit

router = Router(tags=["Usage"])

Percent = Annotated[float, Field(ge=0, le=1000, allow_inf_nan=False)]
WindowMinutes = Annotated[int, Field(ge=1, le=527_040, description="300: five hours; 10080: a week")]
EpochSeconds = Annotated[int, Field(ge=0, le=253_402_300_799, description="Seconds since 1970")]
Name = Annotated[Text, Field(max_length=200)]


class LimitIn(Schema):
    """One window of a limit."""

    window_minutes: WindowMinutes
    used_percent: Percent
    resets_at: EpochSeconds
    name: Name = ""


class LimitsIn(Schema):
    """What a program reports of the subscription that it is signed in to."""

    program: Annotated[Text, Field(min_length=1, max_length=200)]
    host: Name = ""
    limits: Annotated[list[LimitIn], Field(min_length=1, max_length=20)]


class LimitOut(Schema):
    """A limit as it was reported last."""

    program: str
    host: str
    name: str
    window_minutes: int
    used_percent: float
    resets_at: str
    reported_at: str


class ManyLimits(Schema):
    """The limits of all subscriptions that were reported."""

    limits: list[LimitOut]


def limit_as_json(row: SubscriptionLimit) -> dict[str, object]:
    return {
        "program": row.program,
        "host": row.host,
        "name": row.name,
        "window_minutes": row.window_minutes,
        "used_percent": row.used_percent,
        "resets_at": instants.format_canonical_instant(instants.instant_from_microseconds(row.resets_at_us)),
        "reported_at": instants.format_canonical_instant(
            instants.instant_from_microseconds(row.reported_at_us)
        ),
    }


@router.post(
    "/subscription-limits",
    auth=build_scoped_key_auth("agent", "runner"),
    response={200: Ok, **error_responses(400)},
    operation_id="report_subscription_limits",
    summary="Report how full the limits of a subscription are",
)
def report_subscription_limits(request: HttpRequest, body: LimitsIn) -> dict[str, bool]:
    """Keep the newest reading of each window."""
    now = timezone.now()
    readings = [
        LimitReading(limit.name, limit.window_minutes, limit.used_percent, limit.resets_at * 1_000_000)
        for limit in body.limits
    ]
    limits.record_subscription_limit_readings(body.program, body.host, readings, reported_at=now, now=now)
    return {"ok": True}


@router.get(
    "/subscription-limits",
    auth=build_scoped_key_auth("read", "operator"),
    response={200: ManyLimits, **error_responses()},
    operation_id="list_subscription_limits",
    summary="List the limits of subscriptions",
)
def list_subscription_limits(request: HttpRequest) -> dict[str, object]:
    rows = SubscriptionLimit.objects.order_by("program", "host", "name", "window_minutes")
    return {"limits": [limit_as_json(row) for row in rows]}
