"""Names as templates show them, without loading anything: nothing in them can hide or turn round what follows."""

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
    """Return a name or title with what cannot be seen in it as its code: `[U+202E]`."""
    return reveal_invisible_characters(str(text))


@register.simple_tag
def agent_link(
    name: object, agent: LinkedAgent | Literal[""] | None, text: SafeString | None = None
) -> SafeString:
    """Draw a name of an agent as a link to the agent's page, and as the name itself where it is linked to none.

    The link says what the agent is called, and its title the name; with `text`, which is the name as drawn by another
    filter, it is the other way round.
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
