"""General template tags: times, states, icons, durations, sizes, folded JSON.

Rows use them, so they are fast.
"""

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
    format_duration,
    format_exact_time,
    format_relative_time,
    format_whole_second_duration,
)
from coordinator.secrets.masking import mask_secrets_in_value, shorten_mask_digests
from dashboard.text import json_text
from dashboard.text.states import find_status_style

CODE_SPAN = re.compile(r"(`+)(.+?)\1")
register = Library()

DASH = "\N{EN DASH}"
NOTHING = format_html('<span class="nothing">{}</span>', DASH)
ODD_TITLE = "Shown as stored: not a readable time"
CAN = {  # classes of the body, and the roles that have the ability
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
    """Render a symbol of static/icons.svg. Screen readers skip it, so a text must accompany it."""
    return format_html(
        '<svg class="icon {}" aria-hidden="true"><use href="{}#{}"/></svg>',
        classes,
        find_icon_sprite_url(),
        name,
    )


@register.simple_tag
def sort_icon(column: BoundColumn) -> SafeString | str:
    """Render the direction in which a table is sorted by the column, or nothing if it is not sorted by it."""
    if not column.is_ordered:
        return ""
    return icon("sort-down" if column.order_by_alias.is_descending else "sort-up")


@register.simple_tag
def column_heads(*names: str) -> SafeString:
    """Render the heads of a table's columns. A name that begins with `#` is a column of numbers."""
    return format_html_join(
        "\n",
        '<th scope="col"{}>{}</th>',
        ((SafeString(' class="num"') if name[:1] == "#" else "", name.removeprefix("#")) for name in names),
    )


@register.simple_block_tag
def empty_state(content: str, icon: str, title: str, href: str = "", action: str = "") -> SafeString:
    """Render why a list is empty.

    The text is between the tags; `href` and `action` are a link to the next step.
    """
    text = SafeString(content.strip())  # the template has escaped it; `strip` returns a plain str
    context = {"icon": icon, "title": title, "text": text, "href": href, "action": action}
    return render_to_string("components/_empty.html", context)


@register.simple_block_tag(takes_context=True)
def filters(
    context: Context, content: str, list: str, search: str, query: str, *, filtered: bool = False
) -> SafeString:
    """Render a list's filters: a search box that contains `query`, and the fields between the tags.

    The filters update #results while a person types or chooses. `list` is the list's URL, and `search` the
    label of the search box. On a phone the fields are hidden behind a button.
    """
    fields = SafeString(content.strip())  # the template has escaped it; `strip` returns a plain str
    parts = {"list": list, "search": search, "words": query, "fields": fields, "filtered": filtered}
    return render_to_string(
        "components/_filters.html", parts | {"count": count_filter_fields(context, besides="q")}
    )


@register.simple_tag(takes_context=True)
def count_filter_fields(context: Context, besides: str = "") -> int:
    """Return how many filter fields the request's query string fills.

    Names in `besides` (separated by commas) and parameters that are not filters, such as `page`, do not
    count.
    """
    no_fields = {*besides.split(","), "page", "sort", "zone", "before", "after"}
    return sum(bool(value) for name, value in context["request"].GET.items() if name not in no_fields)


@register.inclusion_tag("components/_choice.html")
def choice(name: str, label: str, any: str, choices: Iterable[Any], chosen: str) -> dict[str, Any]:
    """Render the select of a filter.

    `any` is the label for no choice; choices are texts, or pairs of value and label.
    """
    pairs = [
        (choice_value, choice_value) if isinstance(choice_value, str) else choice_value
        for choice_value in choices
    ]
    return {"name": name, "label": label, "any": any, "pairs": pairs, "chosen": chosen}


@register.filter
def role_classes(role: str | None) -> str:
    """Return the classes of the body for a person's role. components.css hides what the role may not do."""
    return " ".join(f"can-{can}" for can, least in CAN.items() if role in least)


@register.simple_tag
def status(word: object) -> SafeString:
    """Render a state as a chip: tone, shape and label (dashboard/text/states.py)."""
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
    """Render only the shape of a state, for narrow rows. Its label is read aloud and appears on hover."""
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
    """Render a time relative to now, with the exact time on hover.

    Text that is not a time (UnreadableText) is unchanged.
    """
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
def render_backticks_as_code(text: str) -> SafeString:
    """Render one of our texts, with the parts between backticks as code."""
    pieces, at = [], 0
    for code_match in CODE_SPAN.finditer(text):
        pieces += [(text[at : code_match.start()],), (format_html("<code>{}</code>", code_match[2].strip()),)]
        at = code_match.end()
    return format_html_join("", "{}", [*pieces, (text[at:],)])


@register.simple_tag
def ends(value: object) -> SafeString:
    """Render when something ends or ended: "ends in 59 minutes", with the exact time on hover."""
    is_over = isinstance(value, datetime) and value <= timezone.now()
    return format_html("{} {}", "ended" if is_over else "ends", time(value))


@register.simple_tag
def elapsed(start: object, end: object = None) -> SafeString:
    """Render how long something took.

    Without an end, render the time since the start, which the browser updates.
    """
    if not isinstance(start, datetime):
        return NOTHING
    if isinstance(end, datetime):
        return format_html('<span class="num">{}</span>', format_duration(end - start))
    return format_html(
        '<time class="num" datetime="{}" data-clock="since" title="since {}">{}</time>',
        start.isoformat(),
        format_exact_time(start),
        format_whole_second_duration(timezone.now() - start),
    )


@register.simple_tag
def render_live_session_title(
    session_id: str, title: str | None = "", otherwise: str | None = ""
) -> SafeString:
    """Render a session's title, or `otherwise` or its id. The event stream updates it after a change."""
    return format_html(
        '<span data-session-title="{}">{}</span>', session_id, title or otherwise or session_id
    )


@register.simple_tag
def countdown(end: object) -> SafeString:
    """Render the time that is left until `end`, or "passed". The browser updates it."""
    if not isinstance(end, datetime):
        return time(end)
    remaining_time = end - timezone.now()
    return format_html(
        '<time class="num" datetime="{}" data-clock="until" title="until {}">{}</time>',
        end.isoformat(),
        format_exact_time(end),
        format_whole_second_duration(remaining_time) if remaining_time > timedelta(0) else "passed",
    )


@register.filter
def diff_class(sign: str) -> str:
    """Return the CSS class of a diff's line, by its sign."""
    return DIFF_CLASSES.get(sign, "")


@register.filter(name="without_secrets")
def mask_secrets_in_text(text: str | None) -> str:
    """Return a stored text with its secrets masked, ready for display."""
    return shorten_mask_digests(mask_secrets_in_value(text or ""))


@register.filter
def duration(value: timedelta | float | None) -> str:
    """Return a timedelta or a number of seconds for display: `4m 12s`; a dash for None."""
    return DASH if value is None else format_duration(value)


@register.filter
def duration_ms(value: float | None) -> str:
    """Return a number of milliseconds for display; a dash for None."""
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
    """Return the value of a dictionary under a key, or "" if there is none."""
    return mapping.get(key, "")


@register.filter
def count_of(number: int, text: str) -> str:
    """Return a number with its noun: `{{ 2|count_of:"run,runs" }}` gives `2 runs`.

    Thousands are separated by commas.
    """
    singular, _, many = text.partition(",")
    return f"{number:,} {singular if number == 1 else many or singular + 's'}"


@register.filter
def pretty_json(value: object) -> str:
    """Return a decoded JSON value indented. Text that is not JSON (UnreadableText) is unchanged."""
    return json_text.format_json(value)


@register.simple_tag
def fold(value: object, label: str = "") -> SafeString:
    """Render a JSON value: a short one on one line, a longer one folded behind its beginning or `label`."""
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
    """Render a button that copies `text`. static/js/copy.js shows it; without JavaScript it stays hidden."""
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
    """Store what is between `{% capture name %}` and `{% endcapture %}` in a variable, without output.

    The base template uses it to check whether a page has filled a block.
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
    """Return the request's query string with `changes` applied: `{% with_query page=2 %}`.

    None removes a parameter.
    """
    query = context["request"].GET.copy()
    for name, value in changes.items():
        query.pop(name, None)
        if value is not None and value != "":
            query[name] = str(value)
    return f"?{query.urlencode()}" if query else "?"


@register.simple_tag(takes_context=True)
def page_query(context: Context, page: Page[Any], step: int) -> str:
    """Return the query string of the page `step` pages after `page`, or "" if there is no such page."""
    number = page.number + step
    return with_query(context, page=number) if 1 <= number <= page.paginator.num_pages else ""


@register.simple_tag(takes_context=True)
def sort_query(context: Context, table: Any, column: Any) -> str:
    """Return the query string that sorts a django-tables2 `table` by `column`, starting at the first page."""
    changes = {table.prefixed_order_by_field: column.order_by_alias.next, table.prefixed_page_field: None}
    return with_query(context, **changes)
