"""Template tags for names. They load no rows, and show invisible characters as codes."""

from __future__ import annotations

from typing import Literal

from django.template import Library
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from coordinator.lib.invisible import reveal_invisible_characters
from coordinator.models.agent_names import LinkedAgent

register = Library()


@register.filter(is_safe=True)
def visible(text: object) -> str:
    """Return a name or title with each invisible character replaced by its code: `[U+202E]`."""
    return reveal_invisible_characters(str(text))


@register.simple_tag
def agent_link(
    name: object, agent: LinkedAgent | Literal[""] | None, text: SafeString | None = None
) -> SafeString:
    """Render a name as a link to the agent's page, or as plain text if it is linked to no agent.

    The link's text is the agent's current name, its tooltip the given name. With `text`, which is the given
    name as another filter rendered it, the link's text is `text` and the tooltip the agent's name.
    """
    if not agent:
        return text if text is not None else format_html("{}", visible(name))
    agent_name = visible(agent.agent_name)
    return format_html(
        '<a class="plain tall" href="{}" title="{}">{}</a>',
        reverse("agents:detail", args=[agent.agent_id]),
        agent_name if text is not None else visible(name),
        agent_name if text is None else text,
    )
