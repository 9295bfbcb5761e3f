"""The table of grants."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import django_tables2 as tables
from django.template.loader import render_to_string
from django.utils.safestring import SafeString

from coordinator.models import Grant
from coordinator.policy.grants import access


class GrantTable(tables.Table):  # type: ignore[misc] # the library has no types
    """The table of grants, one row for each.

    `now` decides which have ended. `servers` and `agent_labels` are the known servers and agents.
    """

    permission = tables.Column(verbose_name="Permission", attrs={"td": {"class": "tight"}})
    what = tables.Column(
        verbose_name="Agent and target",
        empty_values=(),
        order_by=("agent_id", "server_id", "tool_name"),
        attrs={"td": {"class": "wide"}},
    )
    granted_by = tables.Column(verbose_name="By", default="\N{EN DASH}", attrs={"td": {"class": "tight"}})
    granted_at = tables.Column(verbose_name="Since", attrs={"td": {"class": "tight"}})
    expires_at = tables.Column(verbose_name="Until", empty_values=(), attrs={"td": {"class": "tight"}})
    verbs = tables.Column(
        verbose_name="Action", empty_values=(), orderable=False, attrs={"td": {"class": "tight verbs"}}
    )

    rows_walk = True

    class Meta:
        model = Grant
        fields = ("permission", "what", "granted_by", "granted_at", "expires_at")
        template_name = "components/table.html"
        attrs = {"class": "cards grants"}
        order_by = "-granted_at"

    def __init__(
        self,
        *args: Any,
        now: datetime,
        servers: set[str],
        agent_labels: dict[str, str],
        back: str,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.now = now
        self.servers = servers
        self.agent_labels = agent_labels
        self.back = back

    def has_grant_expired(self, row: Grant) -> bool:
        return isinstance(row.expires_at, datetime) and row.expires_at <= self.now

    def draw_grant_cell(self, name: str, row: Grant) -> SafeString:
        problems = access.find_grant_field_problems(row)
        if row.server_id not in self.servers:
            problems.append("denies: this server does not exist")
        if row.agent_id not in self.agent_labels:
            problems.append("there is no agent with this id")
        context = {
            "cell": name,
            "row": row,
            "agent": self.agent_labels.get(row.agent_id, row.agent_id),
            "over": self.has_grant_expired(row),
            "faults": problems,
            "back": self.back,
        }
        return render_to_string("mcp/_grant_cell.html", context)

    def render_permission(self, record: Grant) -> SafeString:
        return self.draw_grant_cell("permission", record)

    def render_what(self, record: Grant) -> SafeString:
        return self.draw_grant_cell("what", record)

    def render_granted_at(self, record: Grant) -> SafeString:
        return self.draw_grant_cell("since", record)

    def render_expires_at(self, record: Grant) -> SafeString:
        return self.draw_grant_cell("until", record)

    def render_verbs(self, record: Grant) -> SafeString:
        return self.draw_grant_cell("verbs", record)
