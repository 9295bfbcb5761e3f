"""The help at /ui/help/: every page is drawn, its links lead somewhere, and the search finds what stands there."""

from __future__ import annotations

import re

import pytest
from django.test import Client
from django.urls import reverse

from dashboard.help.explained import EXPLAINED, help_url
from dashboard.help.pages import PAGES, PICTURES
from dashboard.help.search import search_help
from dashboard.help.sections import load_help_page_sections
from tests.people import signed_in

pytestmark = [pytest.mark.django_db, pytest.mark.one_engine]
LINK = re.compile(r'<(?:a|img|source)\b[^>]*?(?:href|src|srcset)="([^"]+)"')


def page(name: str, client: Client | None = None) -> str:
    answer = (client or signed_in("viewer")).get(f"/ui/help/{name}/")
    assert answer.status_code == 200
    return answer.content.decode()


def text_of(html: str) -> str:
    """Return what the page's Markdown became."""
    return html.partition('<div class="help-text">')[2].partition('<nav class="help-neighbours"')[0]


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_drawn_with_its_headings_and_contents(name: str) -> None:
    html = page(name)
    drawn = text_of(html)
    assert "shown-plain" not in html
    for section in load_help_page_sections(name):
        if section.level > 1:
            assert f'id="{section.anchor}"' in drawn, section.heading
            assert len(load_help_page_sections(name)) <= 3 or f'href="#{section.anchor}"' in html
    assert not re.search(
        r"^#+ |\]\(|\*\*|^\|", re.sub(r"<pre.*?</pre>|<code>.*?</code>", "", drawn, flags=re.S), re.M
    )


@pytest.mark.parametrize("name", PAGES)
def test_every_link_on_a_page_leads_to_a_page_and_a_heading(name: str) -> None:
    drawn = text_of(page(name))
    for link in LINK.findall(drawn):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        if "/pictures/" in path:
            assert path.removeprefix("/ui/help/pictures/").rstrip("/") in PICTURES
            continue
        other = path.removeprefix("/ui/help/").rstrip("/") or name
        assert other in PAGES, link
        assert not anchor or anchor in {section.anchor for section in load_help_page_sections(other)}, link


def test_a_link_to_another_file_of_the_repository_is_plain_text() -> None:
    drawn = text_of(page("deploy"))
    assert "<span><code>.deploy/nginx.conf</code></span>" in drawn


def test_the_index_lists_each_page() -> None:
    html = signed_in("viewer").get("/ui/help/").content.decode()
    for name, shown in PAGES.items():
        assert f'<a href="/ui/help/{name}/">{shown.title}</a>' in html


def test_the_pages_hang_together_by_previous_and_next() -> None:
    names, client = list(PAGES), signed_in("viewer")
    for before, name, after in zip(names, names[1:], names[2:], strict=False):
        html = page(name, client)
        assert f'href="/ui/help/{before}/" rel="prev"' in html
        assert f'href="/ui/help/{after}/" rel="next"' in html


@pytest.mark.parametrize(
    "path",
    ["nothing", "README", "develop", "..", "%2e%2e%2fREADME", "pictures/nothing", "pictures/..%2finstall"],
)
def test_nothing_but_the_named_pages_is_served(path: str) -> None:
    assert signed_in("admin").get(f"/ui/help/{path}/").status_code == 404


@pytest.mark.parametrize("role", ["viewer", "approver", "admin"])
def test_people_of_every_role_read_the_help(role: str) -> None:
    client = signed_in(role)
    assert client.get("/ui/help/").status_code == 200
    assert client.get("/ui/help/pictures/session-light/").headers["Content-Type"] == "image/webp"


def test_strangers_are_asked_to_sign_in() -> None:
    for path in ("/ui/help/", "/ui/help/install/", "/ui/help/pictures/session-light/"):
        assert Client().get(path).status_code == 302


@pytest.mark.parametrize(
    ("theme", "pictures"),
    [
        ("light", {"session-light"}),
        ("dark", {"session-dark"}),
        ("system", {"session-light", "session-dark"}),
    ],
)
def test_pictures_are_in_the_reader_s_colours(theme: str, pictures: set[str]) -> None:
    client = signed_in("viewer")
    client.cookies["signalbox_theme"] = theme
    shown = set(re.findall(r"/ui/help/pictures/([\w-]+)/", text_of(page("install", client))))
    assert shown == pictures


@pytest.mark.parametrize(
    ("query", "page_name", "heading"),
    [
        ("approvals", "approvals", "Approvals"),
        ("brake", "rules", "The brake"),
        ("SIGNALBOX_HELD_FOR", "settings", "Approvals and MCP"),
        ("pgbouncer transaction", "deploy", "PostgreSQL behind a pooler"),
        ("delegate", "approvals", "Delegate"),
    ],
)
def test_the_search_finds_a_section_first(query: str, page_name: str, heading: str) -> None:
    best = search_help(query)[:2]
    assert (page_name, heading) in {(one.section.page.name, one.section.heading) for one in best}


def test_a_hit_in_a_page_s_title_comes_before_hits_in_texts() -> None:
    assert search_help("audit")[0].section.page.name == "audit"
    assert search_help("audit")[0].section.level == 1


def test_results_show_the_words_marked_and_nothing_as_markup() -> None:
    client = signed_in("viewer")
    html = client.get("/ui/help/", {"q": "witness"}).content.decode()
    assert "<mark>witness</mark>" in html
    assert 'href="/ui/help/audit/#keep-checkpoints-elsewhere"' in html
    html = client.get("/ui/help/", {"q": "<script>alert(1)</script>"}).content.decode()
    assert "<script>alert(1)" not in html
    assert "Nothing found" in html


@pytest.mark.parametrize("query", ["", "   ", "x" * 5000, "a " * 500, "(", "[a-", "\\"])
def test_any_words_can_be_searched(query: str) -> None:
    assert signed_in("viewer").get("/ui/help/", {"q": query}).status_code == 200


@pytest.mark.parametrize("target", sorted(set(EXPLAINED.values())))
def test_what_explains_a_page_exists(target: str) -> None:
    name, _, anchor = target.partition("#")
    assert name in PAGES
    assert not anchor or anchor in {section.anchor for section in load_help_page_sections(name)}


# Pages whose address names a row.
OF_ONE_THING = {
    *("agents:detail", "approvals:detail", "connections:agent", "mcp:server", "people:detail"),
    "rules:ready-made-calls",
}


@pytest.mark.parametrize(
    "view",
    [view for view in EXPLAINED if view not in OF_ONE_THING],
)
def test_a_page_links_to_its_explanation(view: str) -> None:
    html = signed_in("admin").get(reverse(view)).content.decode()
    assert f'<a class="how" href="{help_url(EXPLAINED[view])}"' in html


def test_the_menu_leads_to_the_help() -> None:
    assert 'href="/ui/help/"' in signed_in("viewer").get("/ui/account/").content.decode()
