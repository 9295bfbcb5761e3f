"""Imports every module of the admin, which registers its tables. AdminSiteConfig.ready imports this.

The imports are not in dashboard/admin/__init__.py: Django imports dashboard.admin.site to create its site,
and tables that were registered during that import would be registered at a site that is discarded.
"""

from __future__ import annotations

from dashboard.admin import (
    agents,
    audit,
    chat,
    feed,
    gateway,
    jobs,
    keys,
    marks,
    mcp,
    passkeys,
    permissions,
    plugins,
    remaining_tables,
    rules_and_prices,
    sessions,
    users,
)

# Last: a view-only page for every table that no other module registers.
remaining_tables.register_remaining_models()

__all__ = [
    "agents",
    "audit",
    "chat",
    "feed",
    "gateway",
    "jobs",
    "keys",
    "marks",
    "mcp",
    "passkeys",
    "permissions",
    "plugins",
    "remaining_tables",
    "rules_and_prices",
    "sessions",
    "users",
]
