"""Template tags of the approvals pages. They show text so that no character of it can be hidden."""

from __future__ import annotations

import re
import secrets
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from django.template import Context, Library
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.html import escape, format_html
from django.utils.safestring import SafeString

from coordinator.lib.invisible import UNUSUAL, has_invisible_character, is_invisible_character
from coordinator.lib.lookalikes import (
    find_lookalike_character_positions,
    has_lookalike_characters,
    unicode_character_name,
)
from coordinator.policy.requests.approvals import Validity
from coordinator.secrets.masking import shorten_mask_digests
from dashboard.approvals.excerpts import Excerpt
from dashboard.looks.parts import DisplayPart, Spans
from dashboard.templatetags.names import agent_link
from dashboard.text import markdown

if TYPE_CHECKING:
    from dashboard.approvals.cards import CardMember
    from dashboard.overview.views import RequestLine

register = Library()

# Placeholders in a cached fragment that each card replaces; random, so that no agent's text contains one.
PLACES = tuple(f"0{name}-{secrets.token_hex(8)}0" for name in ("token", "key", "chosen", "lasting"))
_PLACE = re.compile("|".join(PLACES))


@register.filter
def reveal(text: object) -> SafeString:
    """Render text with every invisible or direction-changing character as a visible mark.

    Letters that look like others are marked and named. A mask of a secret is shortened to eight digits of its
    digest.
    """
    escaped = str(escape(shorten_mask_digests(str(text))))
    return SafeString(
        UNUSUAL.sub(lambda match: draw_invisible_character(match[0]), highlight_lookalike_letters(escaped))
    )


@register.simple_tag
def requester_link(member: CardMember | RequestLine) -> SafeString:
    """Render the requester: a known agent as a link with its name, any other as `reveal` does."""
    if member.agent is None:
        return reveal(member.requester_name)
    return agent_link(member.requester_name, member.agent)


def highlight_lookalike_letters(escaped: str) -> str:
    """Mark letters that look like others.

    HTML entities are ASCII and are never marked, so no text becomes markup.
    """
    pieces, last = [], 0
    for position in find_lookalike_character_positions(escaped):
        pieces += [escaped[last:position], render_lookalike_letter(escaped[position])]
        last = position + 1
    return "".join([*pieces, escaped[last:]])


@lru_cache(maxsize=4096)
def render_lookalike_letter(char: str) -> str:
    name, code = unicode_character_name(char), f"U+{ord(char):04X}"
    return format_html(
        '<span class="lookalike" title="{}" data-code="{}">{}<span class="visually-hidden"> ({}) </span></span>',
        name,
        code,
        char,
        name,
    )


@register.filter
def reveal_part(part: DisplayPart) -> SafeString:
    """Render a part's text as `reveal` does, with the pieces marked that a person should see first."""
    return reveal_text_and_highlight_spans(part.value, part.spans)


@register.filter
def reveal_excerpt(excerpt: Excerpt) -> SafeString:
    """Render a marked line of a long call as `reveal` does."""
    return reveal_text_and_highlight_spans(excerpt.text, excerpt.spans)


@register.filter
def render_markdown_or_reveal(text: str) -> SafeString:
    """Render a prompt's Markdown, or the text as `reveal` does if it has invisible or lookalike letters."""
    if has_invisible_character(text) or has_lookalike_characters(text):
        return reveal(text)
    return markdown.render_markdown(shorten_mask_digests(text))


def reveal_text_and_highlight_spans(text: str, spans: Spans) -> SafeString:
    """Render a text as `reveal` does, with the pieces at `spans` marked."""
    pieces, last = [], 0
    for start, end in spans:
        pieces += [reveal(text[last:start]), format_html("<mark>{}</mark>", reveal(text[start:end]))]
        last = end
    return SafeString("".join([*pieces, reveal(text[last:])]))


@lru_cache(maxsize=4096)  # a text may consist only of such characters
def draw_invisible_character(char: str) -> str:
    if not is_invisible_character(char):
        return char
    name = unicodedata.name(char, "control character")
    return format_html('<span class="revealed" title="{}">U+{}</span>', name, f"{ord(char):04X}")


@register.simple_tag(takes_context=True)
def render_card_triage_tools(context: Context, card: Any) -> SafeString:
    """Render the actions on a card's requests other than deciding them (approvals/_tools.html).

    A page has up to thirty cards. The fragment is rendered once for each kind of card, and only the
    placeholders of PLACES are replaced.
    """
    member = card.waiting_members[0]
    lasting = (
        reverse("approvals:always", args=[card.decidable_members[0].row.request_id])
        if card.can_create_rule
        else ""
    )
    values = (context.get("csrf_token", ""), card.key, card.waiting_request_ids_as_json, lasting)
    filled = dict(zip(PLACES, map(escape, values), strict=True))
    drawn = render_triage_tools_html(bool(member.snoozed_until), bool(member.assignee_name), bool(lasting))
    return SafeString(_PLACE.sub(lambda match: filled[match[0]], drawn))


@lru_cache(maxsize=8)
def render_triage_tools_html(snoozed: bool, assigned: bool, lasting: bool) -> str:
    token, key, chosen, link = PLACES
    template_context = {"csrf_token": token, "key": key, "chosen": chosen, "lasting": link if lasting else ""}
    return render_to_string(
        "approvals/_tools.html", template_context | {"snoozed": snoozed, "assigned": assigned}
    )


@register.simple_tag
def render_verdict_options(card: Any, validities: Sequence[tuple[str, str]]) -> SafeString:
    """Render the options of a verdict, such as its validity (approvals/_approval_options.html).

    The fragment is rendered once for each kind of card.
    """
    offered = tuple(
        validity
        for validity in validities
        if validity[0] != Validity.UNTIL_REVOKED or card.can_approve_until_revoked
    )
    drawn = render_approval_options_html(tuple(card.offered_scopes), offered, card.is_access_request)
    return SafeString(drawn.replace(PLACES[1], escape(card.key)))


@lru_cache(maxsize=64)
def render_approval_options_html(
    scopes: tuple[tuple[str, str], ...], validities: tuple[tuple[str, str], ...], gives_access: bool
) -> str:
    template_context = {
        "key": PLACES[1],
        "scopes": scopes,
        "validities": validities,
        "gives_access": gives_access,
    }
    return render_to_string("approvals/_approval_options.html", template_context)


@register.filter
def audit_event_label(event_type: str) -> str:
    """Return an audit event as a label: `PERMISSION_REQUEST_APPROVED` gives `Permission request approved`."""
    return event_type.replace("_", " ").capitalize()


@register.filter
def approval_validity_label(validity: str) -> str:
    """Return the label of a validity. An unknown one is returned unchanged."""
    return dict(Validity.choices).get(validity, validity)
