"""What is: every table, one module a context."""

from __future__ import annotations

from coordinator.models.agents import Agent, AgentPlugin
from coordinator.models.audit import AuditLog
from coordinator.models.chat import ChatAttachment, ChatMessage, ReadMark
from coordinator.models.feed import Change
from coordinator.models.fields import OddText
from coordinator.models.hooks import EventOrigin, MessagePart
from coordinator.models.housekeeping import IdempotencyKey, Lease
from coordinator.models.keys import ApiKey, RevokedKey, SetupToken
from coordinator.models.mcp import Grant, McpServer, McpTool
from coordinator.models.notifications import Notification, NotificationTarget
from coordinator.models.permissions import PermissionContext, PermissionRequest, PermissionVote
from coordinator.models.plugins import PluginConfig, PluginData, PluginSetting, RuntimePlugin
from coordinator.models.prices import ModelPrice
from coordinator.models.rules import ToolRule
from coordinator.models.runners import Blueprint, Callback, Capability, Runner, StopCommand
from coordinator.models.sessions import Event, EventContext, HeldRun, Run, Session, SessionWriter

__all__ = [
    "Agent",
    "AgentPlugin",
    "ApiKey",
    "AuditLog",
    "Blueprint",
    "Callback",
    "Capability",
    "Change",
    "ChatAttachment",
    "ChatMessage",
    "Event",
    "EventContext",
    "EventOrigin",
    "Grant",
    "HeldRun",
    "IdempotencyKey",
    "Lease",
    "McpServer",
    "McpTool",
    "MessagePart",
    "ModelPrice",
    "Notification",
    "NotificationTarget",
    "OddText",
    "PermissionContext",
    "PermissionRequest",
    "PermissionVote",
    "PluginConfig",
    "PluginData",
    "PluginSetting",
    "ReadMark",
    "RevokedKey",
    "Run",
    "Runner",
    "RuntimePlugin",
    "Session",
    "SessionWriter",
    "SetupToken",
    "StopCommand",
    "ToolRule",
]
