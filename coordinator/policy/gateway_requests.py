"""A request for a call through the MCP gateway in words: who wants to call which tool, and what its approval binds."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePath

from coordinator.models import PermissionRequest, Session
from coordinator.policy.tool_calls import GATEWAY

BOUND = " · arguments sha256:[0-9a-f]{64} · definition sha256:[0-9a-f]{0,64} · policy [0-9a-f]{16}"


@dataclass(frozen=True, slots=True)
class GatewayRequest:
    """What a request for a call says: the tool and its server, and how the agent's MCP client calls itself."""

    tool: str
    server: str
    client: str

    @property
    def gist(self) -> str:
        return f"{self.tool} of {self.server}"


def gateway_request_of(request: PermissionRequest) -> GatewayRequest | None:
    """Return what a request says whose whole target is what the gateway binds an approval to; None for any other.

    Whoever else names itself as the gateway does not get a target of its own folded away.
    """
    data = request.metadata
    if request.plugin_id != GATEWAY or not isinstance(data, dict):
        return None
    tool, server, client = data.get("tool"), data.get("server"), data.get("client")
    if not isinstance(tool, str) or not isinstance(server, str):
        return None
    pattern = f"{re.escape(tool)} of {re.escape(server)}{BOUND}"
    if re.fullmatch(pattern, request.target_resource or "") is None:
        return None
    return GatewayRequest(tool, server, client if isinstance(client, str) else "")


def folder_names(session_ids: Iterable[str]) -> dict[str, str]:
    """Return the name of the folder in which each session's agent works, where that is known; a list reads them all."""
    rows = Session.objects.filter(pk__in=set(session_ids), project_dir__isnull=False)
    return {pk: PurePath(folder).name for pk, folder in rows.values_list("pk", "project_dir") if folder}
