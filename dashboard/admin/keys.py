"""API keys, to read: they are made and revoked on their own page. Hashes are never shown whole."""

from __future__ import annotations

from typing import Any

from django.contrib import admin

from coordinator.models import ApiKey, ConnectCode, RevokedKey, SessionKey, SetupToken
from dashboard.admin import columns
from dashboard.admin.filters import period, present
from dashboard.admin.options import ViewOnlyAdmin

SHOWN_OF_HASH = 12


@admin.display(description="scopes")
def scopes_cell(row: ApiKey) -> Any:
    return ", ".join(map(str, row.scopes)) if isinstance(row.scopes, list) else str(row.scopes)


@admin.register(ApiKey)
class ApiKeyAdmin(ViewOnlyAdmin):
    list_display = (
        columns.text("name"),
        columns.code("prefix", label="begins with"),
        scopes_cell,
        columns.reference("agent_id", "coordinator_agent"),
        columns.text("created_by"),
        columns.moment("created_at"),
        columns.moment("last_used_at"),
        columns.moment("expires_at"),
        columns.moment("revoked_at"),
    )
    list_filter = (present("revoked_at", "revoked"), present("expires_at", "expiry"), period("created_at"))
    never_read = ("key_hash",)
    search_fields = ("name", "prefix", "agent_id", "created_by")
    ordering = ("name",)


@admin.register(SessionKey)
class SessionKeyAdmin(ViewOnlyAdmin):
    list_display = (
        columns.code("session_id"),
        columns.text("agent_id"),
        columns.code("runner_id"),
        columns.moment("created_at"),
        columns.moment("expires_at"),
    )
    list_filter = (period("created_at"),)
    never_read = ("key_hash",)
    search_fields = ("session_id", "agent_id", "runner_id")
    ordering = ("-created_at",)


@admin.display(description="key")
def hash_cell(row: RevokedKey) -> str:
    return f"{(row.key_hash or '')[:SHOWN_OF_HASH]}…"


@admin.register(RevokedKey)
class RevokedKeyAdmin(ViewOnlyAdmin):
    list_display = (hash_cell, columns.moment("revoked_at"))
    list_filter = (period("revoked_at"),)
    ordering = ("-revoked_at",)


@admin.display(description="token")
def token_cell(row: SetupToken) -> str:
    return f"{row.token_hash[:SHOWN_OF_HASH]}…"


@admin.register(SetupToken)
class SetupTokenAdmin(ViewOnlyAdmin):
    list_display = (token_cell, columns.moment("created_at"), columns.moment("used_at"))
    list_filter = (present("used_at", "used"),)
    ordering = ("-created_at",)


@admin.register(ConnectCode)
class ConnectCodeAdmin(ViewOnlyAdmin):
    list_display = (
        columns.text("key_name"),
        columns.reference("agent_id", "coordinator_agent"),
        "made_by",
        columns.moment("created_at"),
        columns.moment("expires_at"),
        columns.moment("used_at"),
        columns.text("used_from"),
    )
    list_filter = (present("used_at", "use"), period("created_at"))
    never_read = ("code_hash",)
    search_fields = ("key_name", "agent_id")
    ordering = ("-created_at",)
