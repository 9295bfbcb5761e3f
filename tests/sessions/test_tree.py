"""The tree of sessions: who started whom, drawn from any of them, however odd the parents are."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import pytest

from coordinator.models import Agent, Session
from dashboard.sessions.views.tree import MOST_LEVELS, MOST_SESSIONS, load_session_tree
from tests.people import signed_in

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 27, 9, tzinfo=UTC)


def add_session(name: str, parent: Session | None = None, status: str = "finished") -> Session:
    return Session.objects.create(
        session_id=name, status=status, created_at=NOW, agent_name=name, parent_session=parent
    )


def names(session: Session) -> list[list[str]]:
    return [[row.pk for row in level] for level in load_session_tree(session).levels]


def show(session_id: str) -> Any:
    return signed_in("viewer").get(f"/ui/sessions/{session_id}/-/tree/")


def test_the_whole_tree_is_shown_from_each_of_its_sessions() -> None:
    root = add_session("root")
    left, right = add_session("left", root), add_session("right", root)
    leaf = add_session("leaf", left)
    assert names(root) == [["root"], ["left", "right"], ["leaf"]]
    for session in (left, right, leaf):
        assert names(session) == names(root)
    assert load_session_tree(leaf).is_whole


def test_parents_in_a_circle_end() -> None:
    first = add_session("first")
    second = add_session("second", first)
    Session.objects.filter(pk="first").update(parent_session="second")
    first.refresh_from_db()
    assert names(first) == [["second"], ["first"]]
    assert names(second) == [["first"], ["second"]]


def test_a_large_tree_is_cut_and_says_so() -> None:
    root = add_session("root")
    for number in range(MOST_SESSIONS + 5):
        add_session(f"child{number:03}", root)
    tree = load_session_tree(root)
    assert len(tree.all_sessions) == MOST_SESSIONS
    assert not tree.is_whole
    assert "There are more." in show("root").content.decode()


def test_a_deep_tree_is_cut_and_says_so() -> None:
    session = root = add_session("0")
    for number in range(1, MOST_LEVELS + 2):
        session = add_session(str(number), session)
    tree = load_session_tree(root)
    assert len(tree.levels) == MOST_LEVELS
    assert not tree.is_whole


def test_the_page_names_agents_and_leads_to_sessions() -> None:
    Agent.objects.create(id="agent.child", name="The child", default_engine_id="mind.x")
    add_session("child", add_session("root"), "error")
    page = " ".join(show("child").content.decode().split())
    assert "2 sessions" in page
    assert ">The child</text>" in page
    assert "The child: error" in page
    assert 'href="/ui/sessions/root/"' in page
    assert "There are more." not in page


def test_the_list_for_phones_has_each_session_below_the_one_that_started_it() -> None:
    root = add_session("root")
    left = add_session("left", root)
    add_session("right", root, "error")
    add_session("leaf", left)
    page = show("leaf").content.decode()
    outline = page.partition('<ul class="link-outline" aria-label=')[2].partition("<details>")[0]
    depth, levels = 1, []
    for tag, label in re.findall(r"(</?ul)|/ui/sessions/(\w+)/", outline):
        depth += {"<ul": 1, "</ul": -1}.get(tag, 0)
        levels += [(depth, label)] if label else []
    assert levels == [(1, "root"), (2, "left"), (3, "leaf"), (2, "right")]
    assert 'class="edge deny"' in outline


def test_no_such_session_is_a_404() -> None:
    assert show("nobody").status_code == 404
