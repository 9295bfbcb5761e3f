"""Groups the admin's list of tables by subject, with internal tables last."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

INTERNAL = "Internal tables"
SUBJECTS = {
    "Agents and plugins": "Agent AgentName Blueprint RuntimePlugin PluginSetting",
    "Sessions": (
        "Session Event Note SessionChange SessionGuard SessionOwner SessionTitle SessionTag Run Runner Capability"
    ),
    "Approvals and rules": (
        "PermissionRequest PermissionVote ToolRule DismissedSuggestion KnownHost DangerMark DecidingRule"
        " Delegation Escalation EscalationStep Brake Budget"
    ),
    "MCP": "McpServer McpUpstream McpTool Grant GatewayCall GatewaySession",
    "Chat": "ChatMessage ChatAttachment ChatBranch",
    "Usage": "ModelPrice ModelRequestUsage UsageDay UsageFill",
    "Notifications": "NotificationTarget Notification NotificationChoice QuietHours Callback",
    "People and keys": "User Group ApiKey RevokedKey ProviderIdentity Passkey RecoveryCode",
    "Audit": "AuditLog AuditCheckpoint AuditDelivery AuditKey",
    "Housekeeping": "Job",
}


def group_models_by_subject(models: Iterable[dict[str, Any]], url: str) -> list[dict[str, Any]]:
    """Return the models by subject, in the format of Django's list of apps: each subject is an "app"."""
    subject_of = {name: subject for subject, names in SUBJECTS.items() for name in names.split()}
    grouped: dict[str, list[dict[str, Any]]] = {subject: [] for subject in [*SUBJECTS, INTERNAL]}
    for model in models:
        grouped[subject_of.get(model["object_name"], INTERNAL)].append(model)
    return [
        {
            "name": subject,
            "app_label": subject.lower().replace(" ", "-"),
            "app_url": url,
            "has_module_perms": True,
            "models": sorted(of_it, key=lambda model: str(model["name"]).lower()),
        }
        for subject, of_it in grouped.items()
        if of_it
    ]
