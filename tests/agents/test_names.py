"""One agent under several names: how names are linked, who says so, and that a link allows nothing."""

from __future__ import annotations

import ast
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from coordinator.actions.agents import agent_names, agents
from coordinator.actions.policy import brakes, budgets
from coordinator.errors import Conflict, NotFound
from coordinator.identity.actors import Actor
from coordinator.identity.keys import KeyIdentity
from coordinator.identity.ownership import own_sessions_condition
from coordinator.models import (
    Agent,
    AgentName,
    ApiKey,
    AuditLog,
    Blueprint,
    ModelRequestUsage,
    Run,
    Runner,
    Session,
    UsageDay,
)
from coordinator.models.agent_names import (
    LinkReason,
    find_linked_agent,
    link_reasons_by_agent_name,
    list_agent_filter_choices,
    list_names_of_same_agent,
)
from coordinator.policy.grants import access
from coordinator.policy.limits import brakes as braked
from coordinator.policy.limits.budgets import (
    decide_by_budgets,
    installation_local_iso_date,
    load_active_budgets,
)
from coordinator.policy.rules.tool_rules import NO_OPINION, DecisionRule, tool_ruling_or_no_opinion
from coordinator.usage.reading import load_usage_by_dimension_values
from tests.access.cases import add_server, grant
from tests.approvals.factories import asked
from tests.people import signed_in

pytestmark = pytest.mark.django_db
ANN = Actor("user", "ann")
NOW = datetime(2026, 11, 27, 9, tzinfo=UTC)
ONCALL = "agent.platform_oncall"
PAGE = f"/ui/agents/of/{ONCALL}/"
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _oncall() -> None:
    agents.create_agent(ONCALL, name="Platform oncall", default_engine_id="mind.x", actor=ANN)


def add_session(name: str | None, number: int = 1) -> Session:
    return Session.objects.create(
        session_id=f"ses_{name or 'nobody'}_{number}", status="finished", created_at=NOW, agent_name=name
    )


def add_blueprint(name: str) -> None:
    Blueprint.objects.create(name=name, description="", created_at=NOW, modified_at=NOW)


def body(response: Any) -> str:
    return str(response.content.decode())


def link(name: str, agent_id: str = ONCALL) -> None:
    agent_names.link_agent_name(name, agent_id, actor=ANN, now=NOW)


def reason_of(name: str) -> LinkReason | None:
    agent = find_linked_agent(name)
    assert agent is None or agent.agent_id == ONCALL
    return agent and agent.reason


class TestLinks:
    @pytest.mark.parametrize(
        ("name", "reason"),
        [
            (ONCALL, LinkReason.ID),
            ("platform-oncall", LinkReason.SAME_ID),
            ("Platform oncall", LinkReason.SAME_ID),
            ("platform", None),
            ("", None),
        ],
    )
    def test_a_name_is_linked_by_id_or_by_the_id_that_follows_from_it(self, name, reason):
        assert reason_of(name) == reason

    def test_a_renamed_agent_keeps_what_is_under_its_new_name(self):
        Agent.objects.filter(pk=ONCALL).update(name="Night watch")
        assert reason_of("Night watch") == LinkReason.AGENT_NAME

    def test_a_name_that_two_agents_have_is_linked_to_neither(self):
        Agent.objects.filter(pk=ONCALL).update(name="Night watch")
        agents.create_agent("agent.other", name="Night watch", default_engine_id="mind.x", actor=ANN)
        assert find_linked_agent("Night watch") is None

    def test_an_id_is_its_own_agents_whatever_was_linked_before(self):
        add_session("robot")
        link("robot")
        agents.create_agent("robot", name="Robot", default_engine_id="mind.x", actor=ANN)
        agent = find_linked_agent("robot")
        assert agent is not None
        assert agent.agent_id == "robot"

    def test_what_a_person_says_goes_before_what_follows_from_a_name(self):
        agents.create_agent("agent.other", name="Other", default_engine_id="mind.x", actor=ANN)
        add_session("platform-oncall")
        agent_names.unlink_agent_name("platform-oncall", ONCALL, actor=ANN, now=NOW)
        assert find_linked_agent("platform-oncall") is None
        link("platform-oncall", "agent.other")
        agent = find_linked_agent("platform-oncall")
        assert agent is not None
        assert (agent.agent_id, agent.reason) == ("agent.other", LinkReason.PERSON)

    def test_all_names_of_an_agent_are_found_from_each(self):
        add_session("pager")
        add_session("Platform On-Call?")
        add_session("somebody")
        add_blueprint("platform-oncall")
        link("pager")
        names = {ONCALL, "pager", "platform-oncall"}
        assert set(link_reasons_by_agent_name(ONCALL)) == names
        assert set(list_names_of_same_agent("pager")) == names
        assert list_names_of_same_agent("somebody") == ["somebody"]

    def test_a_filter_offers_an_agent_once_under_its_name(self):
        for name in ("pager", "platform-oncall", "somebody"):
            add_session(name)
        link("pager")
        assert list_agent_filter_choices() == [(ONCALL, "Platform oncall"), ("somebody", "somebody")]
        assert ("pager", "Platform oncall") in list_agent_filter_choices("pager")


class TestByHand:
    def test_linking_and_unlinking_are_audited(self):
        add_session("pager")
        link("pager")
        agent_names.unlink_agent_name("pager", ONCALL, actor=ANN, now=NOW)
        rows = AuditLog.objects.filter(event_type__startswith="AGENT_NAME").order_by("pk")
        assert [(row.event_type, row.actor_id, row.target_id, row.metadata) for row in rows] == [
            ("AGENT_NAME_LINKED", "user:ann", ONCALL, {"name": "pager"}),
            ("AGENT_NAME_UNLINKED", "user:ann", ONCALL, {"name": "pager"}),
        ]

    def test_a_name_that_nothing_has_is_refused(self):
        with pytest.raises(NotFound, match="No session and no blueprint has the name 'pagr'"):
            link("pagr")

    def test_another_agents_id_or_name_is_refused(self):
        agents.create_agent("agent.other", name="Other", default_engine_id="mind.x", actor=ANN)
        add_session("pager")
        link("pager", "agent.other")
        with pytest.raises(Conflict, match=r"linked to agent\.other"):
            link("pager")
        with pytest.raises(Conflict, match="is the id of an agent"):
            link("agent.other")

    def test_a_link_goes_with_its_agent(self):
        add_session("pager")
        link("pager")
        agents.delete_agent_with_data(ONCALL, actor=ANN)
        assert not AgentName.objects.exists()

    def test_administrators_link_and_unlink_on_the_agents_page(self):
        add_session("pager")
        client = signed_in("admin")
        shown = body(client.post(f"/ui/agents/link-name/{ONCALL}/", {"name": " pager "}, follow=True))
        assert "pager is this agent&#x27;s name from now on." in shown
        assert "linked by user:ann" not in shown
        assert "linked by user:admin" in shown
        assert reason_of("pager") == LinkReason.PERSON
        client.post(f"/ui/agents/unlink-name/{ONCALL}/", {"name": "pager"})
        assert find_linked_agent("pager") is None
        refused = body(client.post(f"/ui/agents/unlink-name/{ONCALL}/", {"name": "pager"}, follow=True))
        assert "is not linked to" in refused

    @pytest.mark.parametrize("role", ["approver", "viewer"])
    def test_nobody_else_does(self, role):
        add_session("pager")
        client = signed_in(role)
        for act in ("link-name", "unlink-name"):
            assert client.post(f"/ui/agents/{act}/{ONCALL}/", {"name": "pager"}).status_code == 403
        assert not AgentName.objects.exists()


class TestOnePage:
    def test_the_agents_page_has_the_sessions_and_grants_of_all_its_names(self):
        add_server("srv", "opt-in", ["read"])
        for number in range(3):
            add_session("platform-oncall", number)
        grant("platform-oncall", "srv", "read")
        shown = body(signed_in("viewer").get(PAGE))
        assert "All 3" in shown
        assert "ses_platform-oncall_2" in shown
        assert "blueprint," not in shown
        assert "its id follows from it" in shown
        assert 'for <span class="id">platform-oncall</span>' in " ".join(shown.split())

    @pytest.mark.parametrize("asked", [ONCALL, "platform-oncall", "pager"])
    def test_a_filter_by_any_name_lists_the_sessions_of_all(self, asked):
        for name in ("platform-oncall", "pager", "somebody"):
            add_session(name)
        link("pager")
        shown = body(signed_in("viewer").get("/ui/sessions/", {"agent": asked}))
        assert "ses_platform-oncall_1" in shown
        assert "ses_pager_1" in shown
        assert "ses_somebody_1" not in shown

    def test_a_session_leads_to_its_agents_page(self):
        session = add_session("platform-oncall")
        client = signed_in("viewer")
        for page in (f"/ui/sessions/{session.pk}/", "/ui/sessions/", "/ui/"):
            assert f'href="{PAGE}"' in body(client.get(page)), page

    @pytest.mark.parametrize("page", ["/ui/", "/ui/approvals/", "/ui/approvals/history/"])
    def test_a_request_says_who_asks_by_the_agents_name(self, page):
        asked(agent_id="platform-oncall", now=datetime.now(UTC))
        shown = " ".join(body(signed_in("approver").get(page)).split())
        assert f'href="{PAGE}" title="platform-oncall">Platform oncall</a>' in shown

    def test_decided_requests_are_found_by_the_agents_name(self):
        asked(agent_id=ONCALL, now=datetime.now(UTC))
        client = signed_in("viewer")
        assert PAGE in body(client.get("/ui/approvals/history/", {"q": "platform onc"}))
        assert PAGE not in body(client.get("/ui/approvals/history/", {"q": "platform tester"}))

    def test_a_key_names_its_agent(self):
        ApiKey.objects.create(
            name="laptop", prefix="sbx_", key_hash="h", scopes=["agent"], created_at=NOW, agent_id=ONCALL
        )
        shown = body(signed_in("admin").get("/ui/keys/"))
        assert f'title="{ONCALL}"' in shown
        assert ">Platform oncall</span>" in shown

    def test_grants_are_listed_and_found_by_the_agents_name(self):
        add_server("srv", "opt-in", ["read"])
        grant(ONCALL, "srv")
        grant("agent.other", "srv")
        listed = body(signed_in("viewer").get("/ui/mcp/grants/", {"q": "platform onc"}))
        assert "Platform oncall</span>" in listed
        assert "agent.other" not in listed

    def test_the_matrix_has_a_row_by_the_agents_name(self):
        add_server("srv", "opt-in", ["read"])
        agents.create_agent("agent.other", name="Other", default_engine_id="mind.x", actor=ANN)
        shown = body(signed_in("viewer").get("/ui/mcp/matrix/", {"agents": "platform onc"}))
        assert ">Platform oncall</a>" in shown
        assert ">Other</a>" not in shown

    def test_the_answer_to_why_calls_the_agent_by_its_name(self):
        add_server("srv", "opt-in", ["read"])
        shown = body(
            signed_in("approver").get("/ui/mcp/why/", {"agent": ONCALL, "server": "srv", "tool": "read"})
        )
        assert f'<span title="{ONCALL}">Platform oncall</span>' in shown

    def test_sheets_of_access_call_the_agent_by_its_name(self):
        add_server("srv", "opt-in", ["read"])
        client = signed_in("approver")
        assert "Platform oncall on srv</h1>" in " ".join(
            body(client.get("/ui/mcp/access/", {"agent": ONCALL, "server": "srv"})).split()
        )
        assert ">Platform oncall</a>" in body(client.get("/ui/mcp/access/", {"server": "srv"}))

    def test_agents_of_one_name_are_told_apart_by_their_ids(self):
        agents.create_agent("agent.other", name="Platform oncall", default_engine_id="mind.x", actor=ANN)
        add_server("srv", "opt-in", ["read"])
        grant(ONCALL, "srv")
        assert f"Platform oncall ({ONCALL})" in body(signed_in("viewer").get("/ui/mcp/grants/"))

    def test_a_runner_says_whose_run_it_has_by_the_agents_name(self):
        runner = Runner.objects.create(
            runner_id="lnch_1",
            hostname="atlas",
            project_dir="/srv",
            executor_profile="coding",
            registered_at=NOW,
            last_heartbeat=NOW,
        )
        session = add_session("platform-oncall")
        Run.objects.create(
            run_id="run_1",
            session=session,
            runner_id=runner.pk,
            agent_name="platform-oncall",
            status="running",
            type="start_session",
            created_at=NOW,
        )
        shown = " ".join(body(signed_in("viewer").get("/ui/runners/")).split())
        assert f'href="{PAGE}" title="platform-oncall">Platform oncall</a>' in shown

    def test_usage_counts_an_agent_once(self):
        for name in ("platform-oncall", ONCALL, "somebody", None):
            add_usage(add_session(name), 5)
        used = load_usage_by_dimension_values(ModelRequestUsage.objects.all(), "agent", "model")
        assert {key: row.input for key, row in used.items()} == {
            (ONCALL, "opus"): 10,
            ("somebody", "opus"): 5,
            ("no agent", "opus"): 5,
        }


def add_usage(session: Session, tokens: int) -> None:
    zeros = dict.fromkeys(
        (
            "output_tokens", "cache_read_tokens", "cache_write_5m_tokens", "cache_write_1h_tokens",
            "reasoning_tokens", "tool_tokens", "web_searches",
        ),
        0,
    )  # fmt: skip
    ModelRequestUsage.objects.create(
        request_key=session.pk, session_id=session.pk, at_us=0, day="2026-11-27", model="opus", source="hook",
        is_fast=False, is_batch=False, is_long_context=False, input_tokens=tokens, **zeros,
    )  # fmt: skip


class TestLinksAllowNothing:
    """Whatever is linked to an agent that may do everything, may do what it could before."""

    @pytest.fixture(autouse=True)
    def _linked(self) -> None:
        add_session("pager")
        add_session("platform-oncall")
        link("pager")

    NAMES = ("pager", "platform-oncall", "Platform oncall")

    @pytest.mark.parametrize("name", NAMES)
    def test_grants_hold_for_the_id_alone(self, name):
        add_server("srv", "opt-in", ["read"])
        grant(ONCALL, "srv", "read")
        assert access.resolve_tool_access(ONCALL, "srv", "read", NOW).decision == access.ALLOW
        assert access.resolve_tool_access(name, "srv", "read", NOW).decision == access.DENY

    @pytest.mark.parametrize("name", NAMES)
    def test_rules_hold_for_the_id_alone(self, name):
        rule = DecisionRule(1, "Bash", "allow", "git .*", (ONCALL,))
        command = "git status"
        assert tool_ruling_or_no_opinion((rule,), "Bash", command, ONCALL).decision == "allow"
        assert tool_ruling_or_no_opinion((rule,), "Bash", command, name) == NO_OPINION

    @pytest.mark.parametrize("name", NAMES)
    def test_budgets_and_brakes_hold_for_the_id_alone(self, name):
        budgets.create_budget("agent", ONCALL, "day", "calls", amount=1, at_limit="hold", actor=ANN, now=NOW)
        UsageDay.objects.create(
            day=installation_local_iso_date(NOW), session_id="ses", model="", agent=ONCALL, calls=2, input_tokens=0,
            output_tokens=0, cache_read_tokens=0, cache_write_tokens=0,
        )  # fmt: skip
        brakes.apply_brake_and_stop_runs("agent", ONCALL, "", actor=ANN, now=NOW)
        assert braked.find_brake_on_call([ONCALL], None) is not None
        assert braked.find_brake_on_call([name], None) is None
        in_force = load_active_budgets()
        assert decide_by_budgets(in_force, [ONCALL], "ses", NOW) != NO_OPINION
        assert decide_by_budgets(in_force, [name], f"ses_{name}_1", NOW) == NO_OPINION

    def test_a_key_of_the_agent_reaches_no_session_of_a_linked_name(self):
        key = KeyIdentity(7, "oncall", frozenset({"agent"}), ONCALL)
        own = add_session(ONCALL)
        assert set(Session.objects.filter(own_sessions_condition(key))) == {own}

    def test_nothing_that_decides_reads_links(self):
        deciding = (
            "policy",
            "edge",
            "identity",
            "mcp/gateway",
            "mcp/hosting",
            "api",
            "dialects",
            "runs",
            "actions",
        )
        readers = {
            str(path.relative_to(ROOT / "coordinator"))
            for package in deciding
            for path in (ROOT / "coordinator" / package).rglob("*.py")
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.ImportFrom | ast.Import)
            and "agent_names" in ast.unparse(node).replace("actions.agents.agent_names", "")
        }
        assert readers == {"actions/agents/agent_names.py"}
