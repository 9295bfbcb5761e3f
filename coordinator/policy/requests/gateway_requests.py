"""A request for a call through the MCP gateway in words: who wants to call which tool, and what its approval binds."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePath

from coordinator.models import PermissionRequest, Session
from coordinator.policy.requests.tool_calls import GATEWAY

BOUND = re.compile(
    "(?P<call>.+) · arguments sha256:[0-9a-f]{64} · definition sha256:[0-9a-f]{0,64} · policy [0-9a-f]{16}",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class GatewayRequest:
    """The content of a request for a call: the tool and its server, and how the agent's MCP client calls itself.

    `sent_along` is JSON of what the server gets with the call (its id, and the like), which no approval is bound to.
    """

    gist: str
    client: str
    sent_along: str = ""


def gateway_request_call_label(request: PermissionRequest) -> str | None:
    """Return the tool and the server of a request whose whole target is what the gateway binds an approval to.

    None for any other: a requester that only claims to be the gateway does not get its own target folded away.
    """
    if request.plugin_id != GATEWAY:
        return None
    bound = BOUND.fullmatch(request.target_resource or "")
    return bound["call"] if bound else None


def parse_gateway_request_or_none(request: PermissionRequest) -> GatewayRequest | None:
    """Return what such a request says, for its card; None for any other."""
    if (gist := gateway_request_call_label(request)) is None:
        return None
    data = request.metadata if isinstance(request.metadata, dict) else {}
    client, along = data.get("client"), data.get("sent_along")
    return GatewayRequest(gist, client if isinstance(client, str) else "", json.dumps(along) if along else "")


def load_folder_names_by_session(session_ids: Iterable[str]) -> dict[str, str]:
    """Return the name of the folder in which each session's agent works, where that is known; a list reads them all."""
    rows = Session.objects.filter(pk__in=set(session_ids), project_dir__isnull=False)
    return {pk: PurePath(folder).name for pk, folder in rows.values_list("pk", "project_dir") if folder}
