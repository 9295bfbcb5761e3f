"""The settings with which Claude Code reports to this server, for one user or for all users of a machine."""

from __future__ import annotations

import json
from typing import Any

from coordinator.client.connecting.connectable_agents import waiting_message_with_approvals_url

KEY_VARIABLE = "SIGNALBOX_KEY"
HOST_VARIABLE = "HOSTNAME"
# What waits here is answered before the hook gives up, and the hook gives up before a proxy may.
WAIT, WAITING_TIMEOUT = 540, 570
QUICK_TIMEOUT = 5  # seconds an unreachable server may hold up what only reports
WAITING = ("PreToolUse", "PermissionRequest", "PreSkillShellCommand", "UserPromptExpansion")
REPORTING = (
    "UserPromptSubmit",
    "PostToolUse",
    "PostToolUseFailure",
    "PermissionDenied",
    "Notification",
    "MessageDisplay",
    "SubagentStart",
    "SubagentStop",
    "Stop",
    "StopFailure",
    "PreCompact",
    "PostCompact",
    "PostModelSwitch",
    "ConfigChange",
    "DirectoryAdded",
    "CwdChanged",
    "InstructionsLoaded",
    "TaskCreated",
    "TaskCompleted",
    "TeammateIdle",
    "Elicitation",
    "ElicitationResult",
    "SessionEnd",
)


def render_claude_settings(url: str, *, managed: bool = False) -> str:
    """Return the JSON to paste. `managed`: for the managed settings, where nobody can take the hooks out."""
    endpoint_url = f"{url.rstrip('/')}/hooks/claude-code"
    hooks: dict[str, Any] = {
        "SessionStart": [{"hooks": [{"type": "command", "command": build_curl_command(endpoint_url)}]}]
    }
    for name in WAITING:
        waits = build_http_hook(f"{endpoint_url}?wait={WAIT}", WAITING_TIMEOUT) | {
            "statusMessage": waiting_message_with_approvals_url(url.rstrip("/"))
        }
        hooks[name] = [{"matcher": "*", "hooks": [waits]}]
    for name in REPORTING:
        hooks[name] = [{"hooks": [build_http_hook(endpoint_url, QUICK_TIMEOUT)]}]
    block: dict[str, Any] = {"env": claude_telemetry_variables(url.rstrip("/")), "hooks": hooks}
    if managed:
        block |= {
            "allowManagedHooksOnly": True,
            "allowedHttpHookUrls": [f"{endpoint_url}*"],
            "httpHookAllowedEnvVars": [KEY_VARIABLE, HOST_VARIABLE],
        }
    return json.dumps(block, indent=2)


def claude_telemetry_variables(url: str) -> dict[str, str]:
    """Return the settings with which Claude Code reports tokens and costs; its key is in OTEL_EXPORTER_OTLP_HEADERS."""
    return {
        "CLAUDE_CODE_ENABLE_TELEMETRY": "1",
        "OTEL_LOGS_EXPORTER": "otlp",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json",
        "OTEL_EXPORTER_OTLP_ENDPOINT": url,
    }


def build_http_hook(address: str, timeout: int) -> dict[str, Any]:
    return {
        "type": "http",
        "url": address,
        "timeout": timeout,
        "headers": {"Authorization": f"Bearer ${KEY_VARIABLE}", "X-Signalbox-Host": f"${HOST_VARIABLE}"},
        "allowedEnvVars": [KEY_VARIABLE, HOST_VARIABLE],
    }


def build_curl_command(endpoint: str) -> str:
    """Return the command for SessionStart, which takes no HTTP hook."""
    return (
        f'curl -s -m {QUICK_TIMEOUT} -o /dev/null -H "Authorization: Bearer ${KEY_VARIABLE}"'
        f' -H "X-Signalbox-Host: $(hostname)" -H "Content-Type: application/json" --data-binary @- {endpoint} || true'
    )
