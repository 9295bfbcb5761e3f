"""Templates stay readable: the formatter (djangofmt, run by .ci/run) breaks attributes, not text and not logic."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.served import ROOT

WIDEST = 140  # columns
TEMPLATES = sorted(Path(ROOT, "templates").rglob("*.html"))


def test_no_line_of_a_template_is_too_long() -> None:
    assert len(TEMPLATES) > 150
    long = [
        f"{template.relative_to(ROOT)}:{number}: {len(line)} columns"
        for template in TEMPLATES
        for number, line in enumerate(template.read_text().splitlines(), 1)
        if len(line) > WIDEST
    ]
    assert not long, "\n".join(long)


def test_every_icon_is_in_the_sprite() -> None:
    known = set(re.findall(r'id="([a-z0-9-]+)"', Path(ROOT, "static/icons.svg").read_text()))
    unknown = [
        f"{template.relative_to(ROOT)}: {name}"
        for template in TEMPLATES
        for name in re.findall(r'\{% icon "([a-z0-9-]+)"', template.read_text())
        if name not in known
    ]
    assert not unknown, "\n".join(unknown)


def test_every_class_of_a_template_is_known_to_a_stylesheet_a_script_or_a_test() -> None:
    places = (("static/css", "*.css"), ("static/js", "*.js"), ("static/vendor", "*.css"), ("tests", "*.py"))
    known = {
        word
        for folder, kind in places
        for file in Path(ROOT, folder).rglob(kind)
        for word in re.findall(r"[\w-]+", file.read_text())
    }
    unknown = [
        f"{template.relative_to(ROOT)}: {name}"
        for template in TEMPLATES
        if template.parent.name != "admin"  # Django's own stylesheets know those
        for classes in re.findall(r'class="([^"]*)"', template.read_text())
        for name in re.sub(r"\{[{%].*?[%}]\}", " ", classes).split()
        if name not in known and not name.endswith("-")
    ]
    assert not unknown, "\n".join(unknown)


# What draws nothing itself, so that white space before it stands before whatever follows.
SILENT_TAGS = {"if", "elif", "else", "for", "empty", "with", "load", "extends", "csrf_token", "capture"}
INLINE = {
    *("a", "abbr", "b", "code", "data", "em", "i", "label", "mark", "q", "samp", "small", "span", "strong"),
    *("time", "var"),
}
TOKENS = re.compile(
    r"\{% comment %\}.*?\{% endcomment %\}|\{%.*?%\}|\{\{.*?\}\}|\{#.*?#\}|<!--.*?-->"
    r"|<(?:[^<>{]|\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}|\{)*>",
    re.DOTALL,
)
CLOSES = re.compile(r"[.,;:!?)\N{RIGHT SINGLE QUOTATION MARK}\N{RIGHT DOUBLE QUOTATION MARK}](?![\w.])")
OPENS = ("(", "\N{LEFT SINGLE QUOTATION MARK}", "\N{LEFT DOUBLE QUOTATION MARK}")


def is_silent(tag: str) -> bool:
    name = tag.strip("{%-} ").partition(" ")[0]
    return (
        name in SILENT_TAGS
        or (name.startswith("end") and name != "ends")
        or (name == "url" and " as " in tag)
    )


def tokens_of(source: str) -> Iterator[tuple[int, str]]:
    """Yield the tags, comments, variables and texts of a template, each with where it begins."""
    at = 0
    for found in TOKENS.finditer(source):
        if found.start() > at:
            yield at, source[at : found.start()]
        yield found.start(), found[0]
        at = found.end()
    yield at, source[at:]


@dataclass(frozen=True)
class Before:
    """What a page shows before a place: the text, as far as it stands in the same line, and whether a space follows."""

    word: str = ""
    space: bool = False


@dataclass
class Fork:
    """A tag with branches: what stood before it, what may stand at its end, and whether all may be passed over."""

    entry: set[Before]
    ends: set[Before]
    skippable: bool = True


def gaps_in(source: str) -> Iterator[int]:
    """Yield where a page may show white space before a comma, full stop or the like, or after a bracket."""
    now, forks = {Before()}, list[Fork]()
    for at, token in tokens_of(source):
        if token.startswith(("{#", "<!--", "{% comment")):
            continue
        if token.startswith("{%") and is_silent(token):
            now = beyond(token, now, forks)
        elif token.startswith(("{%", "{{")):
            now = {Before("…")}
        elif token.startswith("<"):
            name = token.strip("</>").partition(" ")[0].partition("\n")[0]
            now = now if name in INLINE else {Before()}
        elif not token.strip():
            now = {Before(one.word, one.space or bool(token)) for one in now}
        else:
            for one in now:
                gap = bool(one.word) and (one.space or token[0].isspace())
                if gap and (CLOSES.match(token.lstrip()) or one.word.endswith(OPENS)):
                    yield at
                    break
            now = {Before(token.rstrip(), token[-1].isspace())}


def beyond(tag: str, now: set[Before], forks: list[Fork]) -> set[Before]:
    """Return what may stand before the place behind a tag that draws nothing itself."""
    name = tag.strip("{%-} ").partition(" ")[0]
    if name in {"if", "for"}:
        forks.append(Fork(now, set()))
        # The first turn of a loop is passed over, so that another turn ends before this.
        return {Before(one.word) for one in now} if "not forloop.first" in tag else now
    if name in {"elif", "else", "empty"}:
        fork = forks[-1]
        fork.ends |= now
        fork.skippable = fork.skippable and name == "elif"
        return fork.entry
    if name in {"endif", "endfor"}:
        fork = forks.pop()
        return fork.ends | now | (fork.entry if fork.skippable else set())
    return now


@pytest.mark.parametrize(
    "source",
    [
        "a word\n{% if more %}, and more{% endif %}",
        "a word {% if more %}({{ number }}){% endif %}\n  .",
        '<a href="{% url x %}">a word\n</a>, and more',
        "a word <b>\n(</b> {% if more %}\n more{% endif %})",
        "{% if one %}{{ one }}\n{% else %}{{ other }}\n{% endif %}.",
        "a word\n{% if more %}\n and more{% endif %}.",
        "a word {% for one in more %}{{ one }}{% endfor %}.",
    ],
)
def test_a_space_before_a_comma_is_found(source: str) -> None:
    assert list(gaps_in(source))


@pytest.mark.parametrize(
    "source",
    [
        "a word{% if more %}, and more{% endif %}.",
        "<p>\n  A word.\n</p>\n<p>\n  (Another.)\n</p>",
        "see <code>.ci/run</code> or ../shared",
        "{% for name in names %}{% if not forloop.first %}, {% endif %}{{ name }}{% endfor %}.",
        "{# a word , #}a word",
    ],
)
def test_a_text_without_such_spaces_passes(source: str) -> None:
    assert not list(gaps_in(source))


def test_no_page_has_a_space_before_a_comma_or_full_stop() -> None:
    found = [
        f"{template.relative_to(ROOT)}:{source.count(chr(10), 0, at) + 1}: {source[max(0, at - 40) : at + 20]!r}"
        for template in TEMPLATES
        for source in [template.read_text()]
        for at in gaps_in(source)
    ]
    assert not found, "\n".join(found)
