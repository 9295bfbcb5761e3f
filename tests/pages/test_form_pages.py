"""Every address that only a form sends to leads whoever opens it to a page, and says why they are there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from coordinator.actions.mcp import tool_collections
from coordinator.actions.plugins import plugins
from coordinator.actions.policy import budgets
from coordinator.identity.actors import person_actor
from coordinator.models import Agent
from dashboard.frame.form_page_redirects import NOTHING_CHANGED, form_page_url_or_overview
from tests.access.cases import add_server, grant
from tests.approvals.factories import asked, person
from tests.guards.declared import walk_views
from tests.people import signed_in
from tests.timelines import make_session

pytestmark = pytest.mark.django_db
ABSENT = {"int": "1", "slug": "odd", "text": "odd"}  # where the page does not show the thing


def form_routes() -> Iterator[tuple[str, str]]:
    for name, route, view in walk_views():
        methods = getattr(view, "allowed_methods", ())
        if route.startswith("/ui/") and methods and "GET" not in methods:
            yield name, route


@pytest.fixture
def world() -> dict[str, Any]:
    """Return one of each thing that an address of a form names."""
    agent, server = Agent.objects.create(id="agent.robot", name="Robot", default_engine_id="mind.x"), "files"
    add_server(server)
    admin = person_actor(person("root", "admin"))
    plugins.create_plugin("mind.test", actor=admin)
    tool_collections.create_tool_collection(server, description="", tools=[], actor=admin, now=timezone.now())
    budget = budgets.create_budget(
        "everything", "", "day", "calls", amount=1, at_limit="warn", actor=admin, now=timezone.now()
    )
    return {
        "session_id": make_session().pk,
        "request_id": asked().request_id,
        "agent_id": agent.pk,
        "name": server,
        "grant_id": grant(agent.pk, server).pk,
        "budget_id": budget.pk,
        "user_id": User.objects.get(username="root").pk,
        "plugin_id": "mind.test",
    }


def fill_route(route: str, values: dict[str, Any]) -> str:
    return re.sub(r"<(\w+):(\w+)>", lambda match: str(values.get(match[2], ABSENT[match[1]])), route)


def test_each_leads_to_a_page_that_says_why(world: dict[str, Any]) -> None:
    client, wrong = signed_in("admin"), []
    for name, route in form_routes():
        answer = client.get(fill_route(route, world), follow=True)
        steps = len(answer.redirect_chain)  # two from the page for signing in, as one is signed in
        page = " ".join(answer.content.decode().split())
        if (
            answer.status_code != 200
            or steps not in {1, 2}
            or NOTHING_CHANGED not in page
            or "</html>" not in page
        ):
            wrong.append(f"{name}: {answer.status_code} after {answer.redirect_chain}")
    assert not wrong, "\n".join(wrong)


def test_no_address_of_a_form_leads_to_another_one() -> None:
    targets = {form_page_url_or_overview(fill_route(route, {})) for _, route in form_routes()}
    addresses = {fill_route(route, {}) for _, route in form_routes()}
    assert len(addresses) > 80
    assert targets & addresses == set()


@pytest.mark.parametrize(
    ("address", "page"),
    [
        ("/ui/rules/save/", "/ui/rules/"),
        ("/ui/brake/3/release/", "/ui/brake/"),
        ("/ui/sessions/ses_1/-/stop/", "/ui/sessions/ses_1/"),
        ("/ui/mcp/switch/files/", "/ui/mcp/servers/files/"),
        ("/ui/approvals/notifications/3/remove/", "/ui/approvals/notifications/"),
        ("/ui/sign-out/", "/ui/"),
    ],
)
def test_the_page_is_the_one_with_the_form(address: str, page: str) -> None:
    answer = signed_in("admin").get(address)
    assert (answer.status_code, answer["Location"]) == (302, page)


def test_a_stranger_is_led_to_sign_in_and_back_to_the_page() -> None:
    answer = Client().get("/ui/rules/save/", follow=True)
    assert answer.redirect_chain[-1][0] == "/ui/sign-in/?next=%2Fui%2Frules%2F"


def test_other_methods_parts_of_pages_and_the_api_are_refused_as_before() -> None:
    client = signed_in("admin")
    assert client.get("/ui/rules/save/", headers={"HX-Request": "true"}).status_code == 405
    assert [client.put("/ui/rules/save/").status_code, client.head("/ui/rules/save/").status_code] == [
        405,
        405,
    ]
    assert client.get("/api/permission-requests/wait").status_code != 302
