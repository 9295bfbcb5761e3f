"""The templates' own words: times, states, icons, lengths, sizes, folded JSON. Kept fast: rows use them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from django.core.paginator import Page
from django.template import Library, Node, NodeList, TemplateSyntaxError
from django.template.base import Parser, Token
from django.template.context import Context
from django.template.loader import render_to_string
from django.templatetags.static import static
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django_tables2.columns import BoundColumn

from coordinator.lib.times import (
    format_clock_duration,
    format_duration,
    format_exact_time,
    format_relative_time,
)
from coordinator.secrets.masking import mask_secrets, shorten_mask_digests
from dashboard.text import json_text
from dashboard.text.states import find_status_style

CODE_SPAN = re.compile(r"(`+)(.+?)\1")
register = Library()

DASH = "\N{EN DASH}"
NOTHING = format_html('<span class="nothing">{}</span>', DASH)
ODD_TITLE = "Shown as stored: not a readable time"
CAN = {  # what a class on the body says: the roles that may
    "view": ("viewer", "approver", "admin"),
    "approve": ("approver", "admin"),
    "admin": ("admin",),
}
DIFF_CLASSES = {"+": "added", "-": "removed", "@": "hunk"}
FOLD_OVER = 120  # characters of JSON that still read well on one line


@cache
def find_icon_sprite_url() -> str:
    return static("icons.svg")


@register.simple_tag
def icon(name: str, classes: str = "") -> SafeString:
    """Draw a symbol of static/icons.svg; it says nothing to screen readers, so a word stands beside it."""
    return format_html(
        '<svg class="icon {}" aria-hidden="true"><use href="{}#{}"/></svg>',
        classes,
        find_icon_sprite_url(),
        name,
    )


@register.simple_tag
def sort_icon(column: BoundColumn) -> SafeString | str:
    """Draw which way a table is sorted by the column; nothing where it is not."""
    if not column.is_ordered:
        return ""
    return icon("sort-down" if column.order_by_alias.is_descending else "sort-up")


@register.simple_tag
def column_heads(*names: str) -> SafeString:
    """Draw the heads of a table's columns; one that begins with `#` is a column of numbers."""
    return format_html_join(
        "\n",
        '<th scope="col"{}>{}</th>',
        ((SafeString(' class="num"') if name[:1] == "#" else "", name.removeprefix("#")) for name in names),
    )


@register.simple_block_tag
def empty_state(content: str, icon: str, title: str, href: str = "", action: str = "") -> SafeString:
    """Say why a list is empty: what stands between the tags; `href` and `action` are the one thing to do next."""
    text = SafeString(content.strip())  # drawn by the template already; `strip` returns a plain text
    context = {"icon": icon, "title": title, "text": text, "href": href, "action": action}
    return render_to_string("components/_empty.html", context)


@register.simple_block_tag(takes_context=True)
def filters(
    context: Context, content: str, list: str, search: str, query: str, *, filtered: bool = False
) -> SafeString:
    """Draw a list's filters: a search box with `query` and the fields between the tags.

    They narrow #results as one types and chooses. `list` is the list's address, `search` says what is searched.
    On a phone the fields stand behind one button.
    """
    fields = SafeString(content.strip())  # drawn by the template already; `strip` returns a plain text
    parts = {"list": list, "search": search, "words": query, "fields": fields, "filtered": filtered}
    return render_to_string(
        "components/_filters.html", parts | {"count": count_filter_fields(context, besides="q")}
    )


@register.simple_tag(takes_context=True)
def count_filter_fields(context: Context, besides: str = "") -> int:
    """Return how many fields of a list's filters the address fills, without `besides` and what is no field."""
    no_fields = {*besides.split(","), "page", "sort", "zone", "before", "after"}
    return sum(bool(value) for name, value in context["request"].GET.items() if name not in no_fields)


@register.inclusion_tag("components/_choice.html")
def choice(name: str, label: str, any: str, choices: Iterable[Any], chosen: str) -> dict[str, Any]:
    """Draw a filter's select. `any` says that nothing is chosen; choices are texts, or pairs of value and label."""
    pairs = [
        (choice_value, choice_value) if isinstance(choice_value, str) else choice_value
        for choice_value in choices
    ]
    return {"name": name, "label": label, "any": any, "pairs": pairs, "chosen": chosen}


@register.filter
def role_classes(role: str | None) -> str:
    """Return the body's classes for a person's role; what others may do is hidden by them (components.css)."""
    return " ".join(f"can-{can}" for can, least in CAN.items() if role in least)


@register.simple_tag
def status(word: object) -> SafeString:
    """Draw a state as a chip: tone, shape and word (dashboard/text/states.py)."""
    state = find_status_style(word)
    return format_html(
        '<span class="chip {}"><svg class="icon" aria-hidden="true"><use href="{}#{}"/></svg>{}</span>',
        state.tone,
        find_icon_sprite_url(),
        state.icon,
        state.label,
    )


@register.simple_tag
def status_icon(word: object) -> SafeString:
    """Draw a state's shape only, for tight rows; its word is read out and shown on hover."""
    state = find_status_style(word)
    return format_html(
        '<span class="chip bare {}" title="{}"><svg class="icon" aria-hidden="true"><use href="{}#{}"/></svg>'
        '<span class="visually-hidden">{}</span></span>',
        state.tone,
        state.label,
        find_icon_sprite_url(),
        state.icon,
        state.label,
    )


@register.simple_tag
def time(value: object, empty: str = "") -> SafeString:
    """Draw an instant: relative, exact on hover; text that is no time (UnreadableText) as it stands."""
    if value is None or value == "":
        return format_html('<span class="nothing">{}</span>', empty) if empty else NOTHING
    if not isinstance(value, datetime):
        return format_html('<span class="odd" title="{}">{}</span>', ODD_TITLE, value)
    return format_html(
        '<time datetime="{}" title="{}">{}</time>',
        value.isoformat(),
        format_exact_time(value),
        format_relative_time(value, timezone.now()),
    )


@register.filter
def with_code(text: str) -> SafeString:
    """Draw a text of our own with what stands between backticks, as in Markdown, as code."""
    pieces, at = [], 0
    for code_match in CODE_SPAN.finditer(text):
        pieces += [(text[at : code_match.start()],), (format_html("<code>{}</code>", code_match[2].strip()),)]
        at = code_match.end()
    return format_html_join("", "{}", [*pieces, (text[at:],)])


@register.simple_tag
def ends(value: object) -> SafeString:
    """Say when something ends or ended: "ends in 59 minutes"; exact on hover."""
    is_over = isinstance(value, datetime) and value <= timezone.now()
    return format_html("{} {}", "ended" if is_over else "ends", time(value))


@register.simple_tag
def elapsed(start: object, end: object = None) -> SafeString:
    """Draw how long something took or, without an end, takes so far (it ticks in the browser)."""
    if not isinstance(start, datetime):
        return NOTHING
    if isinstance(end, datetime):
        return format_html('<span class="num">{}</span>', format_duration(end - start))
    return format_html(
        '<time class="num" datetime="{}" data-clock="since" title="since {}">{}</time>',
        start.isoformat(),
        format_exact_time(start),
        format_clock_duration(timezone.now() - start),
    )


@register.simple_tag
def title_of(session_id: str, title: str | None = "", otherwise: str | None = "") -> SafeString:
    """Draw a session's title, or what to call it without one; the stream brings it anew where it changes."""
    return format_html(
        '<span data-session-title="{}">{}</span>', session_id, title or otherwise or session_id
    )


@register.simple_tag
def countdown(end: object) -> SafeString:
    """Draw how long is left until `end` (it ticks in the browser and says when it has passed)."""
    if not isinstance(end, datetime):
        return time(end)
    remaining_time = end - timezone.now()
    return format_html(
        '<time class="num" datetime="{}" data-clock="until" title="until {}">{}</time>',
        end.isoformat(),
        format_exact_time(end),
        format_clock_duration(remaining_time) if remaining_time > timedelta(0) else "passed",
    )


@register.filter
def diff_class(sign: str) -> str:
    """Return the class of a diff's line."""
    return DIFF_CLASSES.get(sign, "")


@register.filter(name="without_secrets")
def mask_secrets_in_text(text: str | None) -> str:
    """Return a text that is stored as somebody else needs it, as it may be shown: its secrets masked."""
    return shorten_mask_digests(mask_secrets(text or ""))


@register.filter
def duration(value: timedelta | float | None) -> str:
    """Return a span, or a number of seconds, as people read it: `4m 12s`."""
    return DASH if value is None else format_duration(value)


@register.filter
def duration_ms(value: float | None) -> str:
    """Return a number of milliseconds as people read it."""
    return DASH if value is None else format_duration(value / 1000)


@register.filter
def filesize(value: int | None) -> str:
    """Return bytes as `640 B`, `12.5 KB`, `3.1 MB` (1 KB = 1024 B)."""
    if value is None:
        return DASH
    size = float(value)
    for unit in ("B", "KB", "MB", "GB"):
        if size < 1024 or unit == "GB":
            return f"{int(size)} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError("unreachable")


@register.filter
def get_item(mapping: Mapping[str, Any], key: str) -> Any:
    """Return what a dictionary holds under a key; empty where it holds nothing there."""
    return mapping.get(key, "")


@register.filter
def count_of(number: int, text: str) -> str:
    """Return a number with its noun: `{{ 2|count_of:"run,runs" }}` gives `2 runs`, with thousands apart."""
    singular, _, many = text.partition(",")
    return f"{number:,} {singular if number == 1 else many or singular + 's'}"


@register.filter
def pretty_json(value: object) -> str:
    """Return a decoded JSON value indented; text that is no JSON (UnreadableText) as it stands."""
    return json_text.format_json(value)


@register.simple_tag
def fold(value: object, label: str = "") -> SafeString:
    """Draw a JSON value: short ones on one line, longer ones folded behind their beginning or `label`."""
    if value is None or value in ("", {}, []):
        return NOTHING
    line = json_text.format_json_line(value)
    if len(line) <= FOLD_OVER and "\n" not in line and not label:
        return format_html("<code>{}</code>", line)
    summary = format_html("{}", label) if label else format_html("<code>{}…</code>", line[:80])
    return format_html(
        '<details class="fold"><summary>{}</summary><pre class="code" tabindex="0">{}</pre></details>',
        summary,
        pretty_json(value),
    )


@register.simple_tag
def copy(text: object, label: str = "Copy") -> SafeString:
    """Draw a button that copies `text`; static/js/copy.js shows it (without JavaScript it stays hidden)."""
    return format_html(
        '<button class="button ghost icon-only small" type="button" data-copy="{}" title="{}" hidden>{}'
        '<span class="visually-hidden">{}</span></button>',
        text,
        label,
        icon("copy"),
        label,
    )


class CaptureNode(Node):
    """The node of `{% capture %}`."""

    def __init__(self, name: str, nodelist: NodeList) -> None:
        self.name = name
        self.nodelist = nodelist

    def render(self, context: Context) -> SafeString:
        context[self.name] = SafeString(self.nodelist.render(context).strip())
        return SafeString("")


@register.tag
def capture(parser: Parser, token: Token) -> CaptureNode:
    """Keep what stands between `{% capture name %}` and `{% endcapture %}` in a variable, without drawing it.

    The base template asks with it whether a page has filled a block.
    """
    try:
        _, name = token.split_contents()
    except ValueError:
        raise TemplateSyntaxError("{% capture %} takes one name") from None
    nodelist = parser.parse(("endcapture",))
    parser.delete_first_token()
    return CaptureNode(name, nodelist)


@register.simple_tag(takes_context=True)
def with_query(context: Context, **changes: Any) -> str:
    """Return the page's own query string with `changes` made: `{% with_query page=2 %}`; None removes one."""
    query = context["request"].GET.copy()
    for name, value in changes.items():
        query.pop(name, None)
        if value is not None and value != "":
            query[name] = str(value)
    return f"?{query.urlencode()}" if query else "?"


@register.simple_tag(takes_context=True)
def page_query(context: Context, page: Page[Any], step: int) -> str:
    """Return the query string of the page so many further on than `page`, or nothing where there is none."""
    number = page.number + step
    return with_query(context, page=number) if 1 <= number <= page.paginator.num_pages else ""


@register.simple_tag(takes_context=True)
def sort_query(context: Context, table: Any, column: Any) -> str:
    """Return the query string that sorts a django-tables2 `table` by `column`, from the first page on."""
    changes = {table.prefixed_order_by_field: column.order_by_alias.next, table.prefixed_page_field: None}
    return with_query(context, **changes)
