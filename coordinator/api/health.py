"""The health check for probes; no key is needed."""

from __future__ import annotations

from django.http import HttpRequest
from ninja import Schema

from coordinator.api.router import Router

router = Router(tags=["Health"])


class Health(Schema):
    """The server answers."""

    status: str = "healthy"


@router.get(
    "/health", auth=None, response=Health, operation_id="health", summary="Check that the server answers"
)
def check_health(request: HttpRequest) -> Health:
    """Answers as long as a worker can take a request at all; does not check the database."""
    return Health()
