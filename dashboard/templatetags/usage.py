"""Template tags for small usage charts on other pages."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.template import Context, Library
from django.utils import timezone

from coordinator.models import Agent, Session, UsageDay
from coordinator.models.agent_names import link_reasons_by_agent_name
from dashboard.frame.days import find_zone_by_name
from dashboard.usage.activity import build_activity_context, build_agent_week_context, describe_duration_bound
from dashboard.usage.charts import load_small_usage_chart_context

register = Library()


@register.inclusion_tag("usage/_small_chart.html")
def usage_chart() -> dict[str, Any]:
    """Render the usage of all agents in the last days."""
    return load_small_usage_chart_context(UsageDay.objects.all(), timezone.now()) | {"by": "model"}


@register.inclusion_tag("usage/_activity.html")
def activity_chart() -> dict[str, Any]:
    """Render the activity of the last 24 hours, by hour."""
    return build_activity_context(timezone.now())


@register.inclusion_tag("usage/_agent_week.html", takes_context=True)
def agent_week(context: Context, agent: Agent) -> dict[str, Any]:
    """Render an agent's calls of the last seven days, by hour and by tool.

    The query parameter `zone` sets the time zone.
    """
    zone = find_zone_by_name(context["request"].GET.get("zone", "")) or settings.LOCAL_ZONE
    return build_agent_week_context(link_reasons_by_agent_name(agent.pk), timezone.now(), zone) | {
        "agent": agent
    }


@register.filter
def duration_bound(milliseconds: float | None) -> str:
    """Return the time within which calls ended, for display."""
    return describe_duration_bound(milliseconds)


@register.inclusion_tag("usage/_small_chart.html")
def agent_usage_chart(agent: Agent) -> dict[str, Any]:
    """Render the usage of an agent's sessions in the last days."""
    sessions = Session.objects.filter(agent_name__in=link_reasons_by_agent_name(agent.pk)).values("pk")
    days = UsageDay.objects.filter(session_id__in=sessions)
    return load_small_usage_chart_context(days, timezone.now()) | {"by": "agent"}
