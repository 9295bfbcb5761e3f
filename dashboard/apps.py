"""The Django apps of the dashboard and of its admin site."""

from __future__ import annotations

from functools import partial
from importlib import import_module

from django.apps import AppConfig
from django.contrib.admin.apps import AdminConfig


class DashboardConfig(AppConfig):
    """Pages, tables, forms and the admin. It imports coordinator; coordinator never imports it."""

    name = "dashboard"

    def ready(self) -> None:
        """Register the renderers of rows and of the rail's badges at the live stream."""
        fragments, rail = import_module("coordinator.live.fragments"), import_module("dashboard.frame.rail")
        register = fragments.register_fragment_renderer
        wrap_with_rendering_allowance = import_module(
            "dashboard.rendering.allowance"
        ).wrap_with_rendering_allowance
        for entry in rail.ENTRIES:
            if entry.badge:
                fragments.register_topic_summary(
                    entry.badge.topic, partial(rail.build_rail_badge_fragments, entry)
                )
        register(
            "chat_messages",
            wrap_with_rendering_allowance(
                import_module("dashboard.chat.messages").build_chat_message_fragments
            ),
        )
        rows = import_module("dashboard.sessions.rows")
        register("sessions", wrap_with_rendering_allowance(rows.build_session_row_fragments))
        register("session_titles", rows.build_session_title_fragments)
        register("permission_requests", rows.build_waiting_request_count_fragments)
        fragments.register_live_view(rows.VIEW)
        fragments.register_live_view(import_module("dashboard.timeline.updates").VIEW)


class AdminSiteConfig(AdminConfig):
    """Django's admin with Signalbox's site, which sets access, names and appearance."""

    default_site = "dashboard.admin.site.SignalboxAdminSite"

    def ready(self) -> None:
        """Let apps register their models, then register ours.

        dashboard/admin/registry.py explains the order.
        """
        super().ready()
        import_module("dashboard.admin.registry")
