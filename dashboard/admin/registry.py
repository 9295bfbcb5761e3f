"""Imports every module of the admin, which registers its tables. AdminSiteConfig.ready imports this.

Not dashboard/admin/__init__.py: Django makes its site by importing dashboard.admin.site, and a registration
in the middle of that would go to a site that is thrown away.
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

# Last: a view-only page for every table that none of the others shows.
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
