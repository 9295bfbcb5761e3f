"""A form that restricts something never widens it because what it names is gone, and nothing selected is nobody."""

from __future__ import annotations

import re
from datetime import datetime
from html.parser import HTMLParser
from typing import Any

import pytest
from django.db import connection
from django.http import QueryDict
from django.utils import timezone

from coordinator.actions.agents import agents
from coordinator.actions.deciders import rules as deciding
from coordinator.actions.policy import tool_rules
from coordinator.identity.actors import Actor
from coordinator.models import Agent, ApiKey, Budget, DecidingRule, ToolRule
from coordinator.policy.deciders import rules as deciding_rules
from coordinator.policy.rules import tool_rules as policy
from coordinator.policy.rules.tool_rules import DecisionRule
from tests.access.cases import add_agents
from tests.people import person as new_person
from tests.people import signed_in

pytestmark = pytest.mark.django_db
ANN = Actor("user", "ann")
PUBLISH = DecisionRule(1, "Bash", "allow", "npm publish", ("agent.release",))
OTHER = DecisionRule(2, "Bash", "deny", "rm -rf")


class FormReader(HTMLParser):
    """What a browser would send of a page's fields whose names begin with `form-`, and of its version."""

    def __init__(self) -> None:
        super().__init__()
        self.values: dict[str, list[str]] = {}
        self.select: tuple[str, bool, list[tuple[str, bool]]] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag == "input" and values.get("name") and values.get("type") != "submit":
            if values.get("type") != "checkbox" or "checked" in values:
                self._add(str(values["name"]), values.get("value") or "")
        elif tag == "select":
            self.select = (str(values.get("name")), "multiple" in values, [])
        elif tag == "option" and self.select:
            self.select[2].append((values.get("value") or "", "selected" in values))

    def handle_endtag(self, tag: str) -> None:
        if tag == "select" and self.select:
            name, is_multiple, options = self.select
            chosen = [value for value, selected in options if selected]
            for value in chosen or ([] if is_multiple else [options[0][0]]):
                self._add(name, value)
            self.select = None

    def _add(self, name: str, value: str) -> None:
        if name.startswith("form-") or name == "version":
            self.values.setdefault(name, []).append(value)


def fields_of(html: str) -> dict[str, list[str]]:
    reader = FormReader()
    reader.feed(html)
    return reader.values


def save_rules(*rules: DecisionRule) -> None:
    seen = policy.digest_tool_rules(policy.load_saved_tool_rules())
    tool_rules.replace_tool_rules(rules, seen_version=seen, actor=ANN, now=timezone.now())


@pytest.fixture
def rule_of_a_deleted_agent() -> None:
    add_agents("agent.release", "agent.other")
    save_rules(PUBLISH, OTHER)
    agents.delete_agent_with_data("agent.release", actor=ANN)


@pytest.mark.usefixtures("rule_of_a_deleted_agent")
def test_saving_the_rules_again_leaves_a_deleted_agents_rule_its_own() -> None:
    client = signed_in("admin")
    page = client.get("/ui/rules/").content.decode()
    assert "Deleted (agent.release)" in page
    fields = fields_of(page) | {"form-1-reason": ["Better."], "do": ["save"]}
    assert client.post("/ui/rules/save/", fields).status_code == 302
    assert [rule.agents for rule in policy.load_saved_tool_rules()] == [("agent.release",), None]


@pytest.mark.usefixtures("rule_of_a_deleted_agent")
def test_a_page_that_comes_back_with_an_error_still_names_the_agent() -> None:
    client = signed_in("admin")
    fields = fields_of(client.get("/ui/rules/").content.decode())
    refused = client.post("/ui/rules/save/", fields | {"form-1-pattern": ["("], "do": ["save"]})
    assert refused.status_code == 422
    fields = fields_of(refused.content.decode()) | {"form-1-pattern": ["rm"], "do": ["save"]}
    assert client.post("/ui/rules/save/", fields).status_code == 302
    assert [rule.agents for rule in policy.load_saved_tool_rules()] == [("agent.release",), None]


def test_an_agent_that_is_deleted_while_the_page_is_open_is_refused_and_shown() -> None:
    client = signed_in("admin")
    add_agents("agent.gone")
    fields = fields_of(client.get("/ui/rules/").content.decode())
    fields |= {"form-0-tool": ["Bash"], "form-0-agents": ["agent.gone"], "do": ["save"]}
    agents.delete_agent_with_data("agent.gone", actor=ANN)
    refused = client.post("/ui/rules/save/", fields)
    assert (refused.status_code, policy.load_saved_tool_rules()) == (422, ())
    assert fields_of(refused.content.decode())["form-0-agents"] == ["agent.gone"]


def test_no_agent_selected_is_nobody_and_every_agent_is_said_so() -> None:
    client = signed_in("admin")
    fields = fields_of(client.get("/ui/rules/").content.decode())
    assert fields["form-0-agents"] == ["*"]
    fields |= {"form-0-tool": ["Bash"], "form-0-verdict": ["allow"], "do": ["save"]}
    del fields["form-0-agents"]
    assert client.post("/ui/rules/save/", fields).status_code == 302
    assert [rule.agents for rule in policy.load_saved_tool_rules()] == [()]
    assert (
        policy.tool_ruling_or_no_opinion(policy.load_saved_tool_rules(), "Bash", "x", "agent.a").decision
        == "observe"
    )


@pytest.mark.parametrize(
    ("verdict", "status", "saved"), [("deny", 302, [None]), ("ask", 302, [None]), ("allow", 422, [])]
)
def test_a_request_without_the_list_of_agents_restricts_all_and_allows_nothing(
    verdict: str, status: int, saved: list[None]
) -> None:
    client = signed_in("admin")
    fields = fields_of(client.get("/ui/rules/").content.decode())
    fields |= {"form-0-tool": ["Bash"], "form-0-verdict": [verdict], "do": ["save"]}
    del fields["form-0-agents"], fields["form-0-agents_listed"]
    assert client.post("/ui/rules/save/", fields).status_code == status
    assert [rule.agents for rule in policy.load_saved_tool_rules()] == saved


def test_every_agent_beside_one_of_them_is_refused() -> None:
    add_agents("agent.a")
    client = signed_in("admin")
    fields = fields_of(client.get("/ui/rules/").content.decode())
    fields |= {"form-0-tool": ["Bash"], "form-0-agents": ["*", "agent.a"], "do": ["save"]}
    assert client.post("/ui/rules/save/", fields).status_code == 422


@pytest.mark.parametrize("at_rest", ["[]", "broken", "{}", '"agent.a"'])
def test_agents_at_rest_that_are_empty_or_unreadable_stay_nobody_when_saved(at_rest: str) -> None:
    save_rules(DecisionRule(1, "Bash", "allow"), OTHER)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE tool_rules SET agents = %s WHERE position = 1", [at_rest])
    client = signed_in("admin")
    fields = fields_of(client.get("/ui/rules/").content.decode()) | {"form-1-reason": ["!"], "do": ["save"]}
    assert client.post("/ui/rules/save/", fields).status_code == 302
    assert [rule.agents for rule in policy.load_saved_tool_rules()] == [(), None]


@pytest.mark.parametrize(("column", "value"), [("program", "some-program"), ("verdict", "perhaps")])
def test_a_word_of_another_program_is_kept_and_refused_not_replaced(column: str, value: str) -> None:
    save_rules(DecisionRule(1, "Bash", "deny"))
    ToolRule.objects.update(**{column: value})
    client = signed_in("admin")
    fields = fields_of(client.get("/ui/rules/").content.decode())
    assert fields[f"form-0-{column}"] == [value]
    for _ in range(2):
        refused = client.post("/ui/rules/save/", fields | {"form-0-reason": ["!"], "do": ["save"]})
        assert refused.status_code == 422
        fields = fields_of(refused.content.decode())
        assert fields[f"form-0-{column}"] == [value]


def test_a_row_of_who_decides_keeps_a_person_who_is_deleted_while_the_page_is_open() -> None:
    client = signed_in("admin")
    leaving = new_person("approver", "leaving")
    fields = fields_of(client.get("/ui/deciders/").content.decode())
    fields |= {"form-0-tool": ["Bash"], "form-0-people": [str(leaving.pk)], "do": ["save"]}
    leaving_id = leaving.pk
    leaving.delete()
    refused = client.post("/ui/deciders/save/", fields)
    assert (refused.status_code, DecidingRule.objects.count()) == (422, 0)
    assert fields_of(refused.content.decode())["form-0-people"] == [str(leaving_id)]


def test_a_row_of_who_decides_for_a_deleted_person_is_nobodys_after_saving() -> None:
    leaving, seen, now = (
        new_person("approver", "leaving"),
        deciding_rules.deciding_rules_version(()),
        timezone.now(),
    )
    deciding.replace_deciding_rules(
        [deciding_rules.DecidingRuleRow(1, tool="Bash", people=(leaving.pk,))],
        seen_version=seen,
        actor=ANN,
        now=now,
    )
    leaving_id = leaving.pk
    leaving.delete()
    client = signed_in("admin")
    fields = fields_of(client.get("/ui/deciders/").content.decode())
    assert (
        client.post("/ui/deciders/save/", fields | {"form-0-tool": ["Edit"], "do": ["save"]}).status_code
        < 400
    )
    (row,) = DecidingRule.objects.all()
    assert (row.tool, row.people) == ("Edit", [leaving_id])


def test_a_key_for_an_agent_that_was_deleted_meanwhile_is_not_made_for_all() -> None:
    client = signed_in("admin")
    form = {"name": "ci", "scopes": "agent", "agent_id": "agent.gone"}
    refused = client.post("/ui/keys/", form)
    assert (refused.status_code, ApiKey.objects.count()) == (422, 0)
    assert re.search(r'value="agent.gone"\s+selected', refused.content.decode())


def test_a_budgets_unknown_word_is_not_replaced_by_a_warning() -> None:
    now: datetime = timezone.now()
    row = Budget.objects.create(
        reach="everything",
        span="day",
        measure="calls",
        amount=1,
        at_limit="stop",
        changed_at=now,
        changed_by="x",
    )
    page = signed_in("admin").get(f"/ui/budgets/{row.pk}/").content.decode()
    assert re.search(r'value="stop"\s+selected', page)


def test_posted_values_are_read_from_a_plain_mapping_too() -> None:
    from dashboard.accounts.key_views import ApiKeyForm

    for data in ({"agent_id": "agent.gone"}, QueryDict("agent_id=agent.gone")):
        form: Any = ApiKeyForm(data)
        assert "agent_id" in form.errors
    assert not Agent.objects.filter(pk="agent.gone").exists()
