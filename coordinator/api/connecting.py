"""Connecting a machine: exchanges a code from the page Connections for a key. Needs no key itself."""

from __future__ import annotations

from typing import Annotated, Any

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from ninja import Field, Schema

from coordinator.actions.people import connecting
from coordinator.api.router import Router
from coordinator.api.shared_types import Text, error_responses
from coordinator.errors import Forbidden

router = Router(tags=["Connecting"])


class ConnectCodeIn(Schema):
    """A connect code, and the machine's name."""

    code: Annotated[Text, Field(min_length=1, max_length=100)]
    host: Annotated[Text, Field(max_length=connecting.LONGEST_HOST)] = ""


class ExchangedKeyOut(Schema):
    """The key, shown only once, and its name on the page API keys."""

    key: str
    name: str
    agent_id: str | None


@router.post(
    "/connect/exchange",
    auth=None,
    response={200: ExchangedKeyOut, **error_responses(409)},
    operation_id="exchange_connect_code",
    summary="Exchange a connect code for a key",
)
def exchange_connect_code(
    request: HttpRequest, response: HttpResponse, body: ConnectCodeIn
) -> dict[str, Any]:
    """An administrator makes the code on the page Connections; it works once, within ten minutes."""
    if request.headers.get("Origin") or request.headers.get("Sec-Fetch-Site", "none") != "none":
        raise Forbidden("Only programs can exchange connect codes, not browsers.")
    row, raw = connecting.redeem_code_and_issue_key(
        body.code,
        source=str(request.META.get("REMOTE_ADDR") or "unknown"),
        host=body.host,
        now=timezone.now(),
    )
    response["Cache-Control"] = "no-store"
    return {"key": raw, "name": row.name, "agent_id": row.agent_id}
