"""API keys, read-only: people create and revoke them on the page API keys.

Only a hash's beginning is shown.
"""

from __future__ import annotations

from typing import Any

from django.contrib import admin

from coordinator.models import ApiKey, ConnectCode, RevokedKey, SessionKey, SetupToken
from dashboard.admin import columns
from dashboard.admin.filters import build_period_filter_class, build_presence_filter_class
from dashboard.admin.options import ViewOnlyAdmin

SHOWN_OF_HASH = 12


@admin.display(description="scopes")
def scopes_cell(row: ApiKey) -> Any:
    return ", ".join(map(str, row.scopes)) if isinstance(row.scopes, list) else str(row.scopes)


@admin.register(ApiKey)
class ApiKeyAdmin(ViewOnlyAdmin):
    list_display = (
        columns.text_column("name"),
        columns.code_column("prefix", label="begins with"),
        scopes_cell,
        columns.reference_column("agent_id", "coordinator_agent"),
        columns.text_column("created_by"),
        columns.time_column("created_at"),
        columns.time_column("last_used_at"),
        columns.time_column("expires_at"),
        columns.time_column("revoked_at"),
    )
    list_filter = (
        build_presence_filter_class("revoked_at", "revoked"),
        build_presence_filter_class("expires_at", "expiry"),
        build_period_filter_class("created_at"),
    )
    never_read = ("key_hash",)
    search_fields = ("name", "prefix", "agent_id", "created_by")
    ordering = ("name",)


@admin.register(SessionKey)
class SessionKeyAdmin(ViewOnlyAdmin):
    list_display = (
        columns.code_column("session_id"),
        columns.text_column("agent_id"),
        columns.code_column("runner_id"),
        columns.time_column("created_at"),
        columns.time_column("expires_at"),
    )
    list_filter = (build_period_filter_class("created_at"),)
    never_read = ("key_hash",)
    search_fields = ("session_id", "agent_id", "runner_id")
    ordering = ("-created_at",)


@admin.display(description="key")
def key_hash_cell(row: RevokedKey) -> str:
    return f"{(row.key_hash or '')[:SHOWN_OF_HASH]}…"


@admin.register(RevokedKey)
class RevokedKeyAdmin(ViewOnlyAdmin):
    list_display = (key_hash_cell, columns.time_column("revoked_at"))
    list_filter = (build_period_filter_class("revoked_at"),)
    ordering = ("-revoked_at",)


@admin.display(description="token")
def setup_token_hash_cell(row: SetupToken) -> str:
    return f"{row.token_hash[:SHOWN_OF_HASH]}…"


@admin.register(SetupToken)
class SetupTokenAdmin(ViewOnlyAdmin):
    list_display = (setup_token_hash_cell, columns.time_column("created_at"), columns.time_column("used_at"))
    list_filter = (build_presence_filter_class("used_at", "used"),)
    ordering = ("-created_at",)


@admin.register(ConnectCode)
class ConnectCodeAdmin(ViewOnlyAdmin):
    list_display = (
        columns.text_column("key_name"),
        columns.reference_column("agent_id", "coordinator_agent"),
        "made_by",
        columns.time_column("created_at"),
        columns.time_column("expires_at"),
        columns.time_column("used_at"),
        columns.text_column("used_from"),
    )
    list_filter = (build_presence_filter_class("used_at", "use"), build_period_filter_class("created_at"))
    never_read = ("code_hash",)
    search_fields = ("key_name", "agent_id")
    ordering = ("-created_at",)
