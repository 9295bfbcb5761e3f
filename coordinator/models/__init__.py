"""The models: every table, one module a context."""

from __future__ import annotations

from coordinator.lib.unfit_values import UnreadableText
from coordinator.models.agents import Agent, AgentName, AgentPlugin, DeletedAgent
from coordinator.models.audit import AuditLog
from coordinator.models.brakes import Brake
from coordinator.models.budgets import Budget, BudgetMark, SessionOwner
from coordinator.models.call_limits import (
    CachedResult,
    CacheGeneration,
    McpCallLimit,
    McpCallRate,
    McpCircuitBreaker,
    McpHostLearning,
    McpResultHost,
    McpResultMark,
    StoredResult,
)
from coordinator.models.chat import ChatAttachment, ChatBranch, ChatMessage, ReadMark, StoredFile
from coordinator.models.deciders import DecidingRule, Delegation, RightsVersion
from coordinator.models.driving import Draft, DrivenCall, DrivenSession
from coordinator.models.event_origins import EventOrigin, MessagePart
from coordinator.models.feed import Change
from coordinator.models.gateway import GatewayCall, GatewayFigures, GatewayLink, GatewaySession, McpUpstream
from coordinator.models.housekeeping import IdempotencyKey
from coordinator.models.jobs import Job
from coordinator.models.keys import (
    ApiKey,
    ConnectCode,
    InstallationSetting,
    KeyStorageDay,
    RevokedKey,
    SessionKey,
    SetupToken,
)
from coordinator.models.marks import DangerMark
from coordinator.models.mcp import (
    AcceptedOnlyServer,
    AgentToolListing,
    AskingGrant,
    Grant,
    McpCredential,
    McpProcess,
    McpServer,
    McpTool,
    McpToolRevision,
    ToolCollection,
)
from coordinator.models.notes import Note
from coordinator.models.notifications import (
    Escalation,
    EscalationStep,
    Notification,
    NotificationChoice,
    NotificationTarget,
    QuietHours,
)
from coordinator.models.permissions import PermissionContext, PermissionRequest, PermissionVote
from coordinator.models.plugins import PluginConfig, PluginData, PluginSetting, RuntimePlugin
from coordinator.models.push import PushKey, PushSubscription
from coordinator.models.rules import DismissedSuggestion, KnownHost, ToolRule
from coordinator.models.runners import (
    Blueprint,
    Callback,
    Capability,
    DrivenCommand,
    Runner,
    RunnerOffers,
    StopCommand,
)
from coordinator.models.session_changes import SessionChange
from coordinator.models.session_lists import (
    ArchivedSession,
    SavedSessionView,
    SessionFigures,
    SessionListChoice,
    SessionPin,
    SessionTag,
)
from coordinator.models.sessions import (
    Event,
    EventContext,
    HeldRun,
    LivingExecutor,
    Run,
    RunParameters,
    Session,
    SessionGuard,
    SessionTitle,
    SessionWriter,
)
from coordinator.models.sign_ins import (
    DismissedHint,
    Invitation,
    Passkey,
    PasskeyChallenge,
    ProviderIdentity,
    RecoveryCode,
)
from coordinator.models.telemetry import TelemetryOmission
from coordinator.models.transcript_senders import TranscriptProblem, TranscriptSender
from coordinator.models.transparency import (
    AuditCheckpoint,
    AuditDelivery,
    AuditKey,
    AuditLeaf,
    AuditNode,
)
from coordinator.models.triage import RequestAssignment, RequestSnooze
from coordinator.models.upstream_sign_ins import McpAccessToken, McpAgentPerson, McpAuthorization
from coordinator.models.usage import (
    ActivityHour,
    CountedHour,
    ModelPrice,
    ModelRequestUsage,
    SubscriptionLimit,
    UsageDay,
    UsageFill,
)

__all__ = [
    "AcceptedOnlyServer",
    "ActivityHour",
    "Agent",
    "AgentName",
    "AgentPlugin",
    "AgentToolListing",
    "ApiKey",
    "ArchivedSession",
    "AskingGrant",
    "AuditCheckpoint",
    "AuditDelivery",
    "AuditKey",
    "AuditLeaf",
    "AuditLog",
    "AuditNode",
    "Blueprint",
    "Brake",
    "Budget",
    "BudgetMark",
    "CacheGeneration",
    "CachedResult",
    "Callback",
    "Capability",
    "Change",
    "ChatAttachment",
    "ChatBranch",
    "ChatMessage",
    "ConnectCode",
    "CountedHour",
    "DangerMark",
    "DecidingRule",
    "Delegation",
    "DeletedAgent",
    "DismissedHint",
    "DismissedSuggestion",
    "Draft",
    "DrivenCall",
    "DrivenCommand",
    "DrivenSession",
    "Escalation",
    "EscalationStep",
    "Event",
    "EventContext",
    "EventOrigin",
    "GatewayCall",
    "GatewayFigures",
    "GatewayLink",
    "GatewaySession",
    "Grant",
    "HeldRun",
    "IdempotencyKey",
    "InstallationSetting",
    "Invitation",
    "Job",
    "KeyStorageDay",
    "KnownHost",
    "LivingExecutor",
    "McpAccessToken",
    "McpAgentPerson",
    "McpAuthorization",
    "McpCallLimit",
    "McpCallRate",
    "McpCircuitBreaker",
    "McpCredential",
    "McpHostLearning",
    "McpProcess",
    "McpResultHost",
    "McpResultMark",
    "McpServer",
    "McpTool",
    "McpToolRevision",
    "McpUpstream",
    "MessagePart",
    "ModelPrice",
    "ModelRequestUsage",
    "Note",
    "Notification",
    "NotificationChoice",
    "NotificationTarget",
    "Passkey",
    "PasskeyChallenge",
    "PermissionContext",
    "PermissionRequest",
    "PermissionVote",
    "PluginConfig",
    "PluginData",
    "PluginSetting",
    "ProviderIdentity",
    "PushKey",
    "PushSubscription",
    "QuietHours",
    "ReadMark",
    "RecoveryCode",
    "RequestAssignment",
    "RequestSnooze",
    "RevokedKey",
    "RightsVersion",
    "Run",
    "RunParameters",
    "Runner",
    "RunnerOffers",
    "RuntimePlugin",
    "SavedSessionView",
    "Session",
    "SessionChange",
    "SessionFigures",
    "SessionGuard",
    "SessionKey",
    "SessionListChoice",
    "SessionOwner",
    "SessionPin",
    "SessionTag",
    "SessionTitle",
    "SessionWriter",
    "SetupToken",
    "StopCommand",
    "StoredFile",
    "StoredResult",
    "SubscriptionLimit",
    "TelemetryOmission",
    "ToolCollection",
    "ToolRule",
    "TranscriptProblem",
    "TranscriptSender",
    "UnreadableText",
    "UsageDay",
    "UsageFill",
]
