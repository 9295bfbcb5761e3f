"""The Django app of what people see, and the admin site that belongs to it."""

from __future__ import annotations

from functools import partial
from importlib import import_module

from django.apps import AppConfig
from django.contrib.admin.apps import AdminConfig


class DashboardConfig(AppConfig):
    """Pages, tables, forms and the admin. Imports coordinator, never the other way round."""

    name = "dashboard"

    def ready(self) -> None:
        """Tell the live stream how rows and the rail's numbers look."""
        fragments, rail = import_module("coordinator.edge.fragments"), import_module("dashboard.rail")
        register = fragments.register
        for entry in rail.ENTRIES:
            if entry.badge:
                fragments.register_summary(entry.badge.topic, partial(rail.badge_fragments, entry))
        register("chat_messages", import_module("dashboard.chat_messages").message_fragments)
        register("sessions", import_module("dashboard.session_rows").row_fragments)


class AdminSiteConfig(AdminConfig):
    """Django's admin with Signalbox's own site (who may enter, names, look)."""

    default_site = "dashboard.admin.site.SignalboxAdminSite"

    def ready(self) -> None:
        """Let apps register theirs, then register ours (dashboard/admin/registry.py says why so)."""
        super().ready()
        import_module("dashboard.admin.registry")
