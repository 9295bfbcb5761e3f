"""Only people set, raise and remove budgets; each is in the audit, and pages say how budgets stand."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from coordinator.actions import runs
from coordinator.actions.policy import budgets
from coordinator.actions.runs import ordering
from coordinator.actions.sessions import events
from coordinator.errors import BadRequest, Conflict, NotFound, UnprocessableRequest
from coordinator.identity.actors import Actor, key_actor_by_name, system_actor
from coordinator.lib import instants
from coordinator.models import AuditLog, Budget, BudgetMark, Run, Session, SessionOwner
from coordinator.policy.limits import budgets as policy
from coordinator.runs.statuses import RESUME, START
from coordinator.sessions.events import NewEvent
from tests.people import signed_in

pytestmark = pytest.mark.django_db
ANNA = Actor("user", "anna")
NOW = timezone.now()


def add(measure: str = "calls", amount: float = 10, at_limit: str = "hold", **more: Any) -> Budget:
    said = {"reach": "everything", "name": "", "span": "day"} | more
    return budgets.create_budget(
        **said, measure=measure, amount=amount, at_limit=at_limit, actor=ANNA, now=NOW
    )


def session(number: int = 1, **columns: Any) -> Session:
    values = {"status": "running", "created_at": NOW, "agent_name": "codex", "executor_profile": "codex"}
    return Session.objects.create(session_id=f"ses_{number:012x}", **values | columns)


def call(of: Session, times: int = 1, now: datetime = NOW) -> None:
    one = NewEvent(event_type="pre_tool", session_id=of.pk, timestamp=instants.format_canonical_instant(now))
    events.record_events([one] * times, now)


@pytest.mark.parametrize("by", [key_actor_by_name("k"), system_actor("s")])
def test_programs_set_none(by: Actor) -> None:
    made = add()
    with pytest.raises(BadRequest):
        budgets.create_budget("everything", "", "day", "calls", amount=1, at_limit="hold", actor=by, now=NOW)
    with pytest.raises(BadRequest):
        budgets.update_budget(made.pk, amount=99, at_limit="warn", actor=by, now=NOW)
    with pytest.raises(BadRequest):
        budgets.suspend_budget_for_today(made.pk, actor=by, now=NOW)
    with pytest.raises(BadRequest):
        budgets.end_budget(made.pk, actor=by, now=NOW)


@pytest.mark.parametrize(
    "wrong",
    [
        {"amount": 0},
        {"amount": float("nan")},
        {"amount": float("inf")},
        {"measure": "miles"},
        {"at_limit": "explode"},
        {"span": "year"},
        {"reach": "model", "name": "claude-opus-4-6"},
        {"reach": "agent"},
        {"name": "codex"},
        {"reach": "agent", "name": "x\x00"},
    ],
)
def test_what_cannot_be_counted_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UnprocessableRequest):
        add(**wrong)


def test_each_step_is_audited_with_what_was_before() -> None:
    made = add()
    budgets.update_budget(made.pk, amount=20, at_limit="ask", actor=ANNA, now=NOW)
    budgets.suspend_budget_for_today(made.pk, actor=ANNA, now=NOW)
    budgets.end_budget(made.pk, actor=ANNA, now=NOW)
    with pytest.raises(NotFound):
        budgets.update_budget(made.pk, amount=30, at_limit="ask", actor=ANNA, now=NOW)
    rows = AuditLog.objects.filter(target_id=f"budget:{made.pk}").order_by("id")
    assert [row.event_type for row in rows] == [
        "BUDGET_SET",
        "BUDGET_CHANGED",
        "BUDGET_ALLOWED_TODAY",
        "BUDGET_REMOVED",
    ]
    changed = rows[1].metadata
    assert (changed["before"]["amount"], changed["after"]["amount"]) == (10, 20)


def test_80_and_100_percent_are_noted_once_a_day_and_anew_after_a_change() -> None:
    made, one = add(), session()
    call(one, 7)
    budgets.record_reached_budgets(NOW)
    assert not BudgetMark.objects.exists()
    call(one)
    budgets.record_reached_budgets(NOW)
    budgets.record_reached_budgets(NOW)
    call(one, 2)
    budgets.record_reached_budgets(NOW)
    assert list(BudgetMark.objects.order_by("level").values_list("level", flat=True)) == [80, 100]
    told = (
        AuditLog.objects.filter(actor_id="system:budgets").order_by("id").values_list("event_type", flat=True)
    )
    assert list(told) == ["BUDGET_NEARLY_USED", "BUDGET_USED_UP"]
    budgets.update_budget(made.pk, amount=12, at_limit="hold", actor=ANNA, now=NOW)
    budgets.record_reached_budgets(NOW)
    assert list(BudgetMark.objects.values_list("level", flat=True)) == [80]


def test_a_session_s_budget_is_noted_by_session() -> None:
    add(amount=2, span="session")
    one, two = session(1), session(2)
    call(one, 2)
    call(two)
    budgets.record_reached_budgets(NOW)
    assert set(BudgetMark.objects.values_list("about", "level")) == {(one.pk, 80), (one.pk, 100)}


def test_a_call_is_denied_asked_or_let_through_by_what_is_used() -> None:
    held, asked, warned = add(amount=3), add(amount=2, at_limit="ask"), add(amount=1, at_limit="warn")
    one = session()

    def ruling(now: datetime = NOW) -> tuple[str, str]:
        found = policy.decide_by_budgets(policy.load_active_budgets(), ["codex"], one.pk, now)
        return found.decision, found.by

    call(one)
    assert ruling() == ("observe", "")
    call(one)
    assert ruling() == ("ask", f"budget {asked.pk}")
    call(one)
    assert ruling() == ("deny", f"budget {held.pk}")
    until = budgets.suspend_budget_for_today(held.pk, actor=ANNA, now=NOW)
    assert ruling() == ("ask", f"budget {asked.pk}")
    assert ruling(until + timedelta(seconds=1)) == ("observe", "")  # another day
    budgets.update_budget(asked.pk, amount=100, at_limit="ask", actor=ANNA, now=NOW)
    assert ruling() == ("observe", "")
    assert policy.current_budget_state(policy.convert_budget_row(warned), NOW).is_reached


def test_a_person_s_and_an_agent_s_budget_hold_theirs_alone() -> None:
    add(amount=1, reach="person", name="anna")
    add(amount=1, reach="agent", name="gemini")
    hers, other, gemini = session(1), session(2), session(3, agent_name="agent.g", executor_profile="gemini")
    SessionOwner.objects.create(session=hers, person="anna")
    for one in (hers, other, gemini):
        call(one)
    held = {
        one.pk: policy.decide_by_budgets(policy.load_active_budgets(), [], one.pk, NOW).decision
        for one in (hers, other, gemini)
    }
    assert held == {hers.pk: "deny", other.pk: "observe", gemini.pk: "deny"}


def test_no_run_is_ordered_once_a_budget_that_holds_is_used_up() -> None:
    def order(by: Actor = ANNA, **more: Any) -> Run:
        return ordering.queue_start_or_resume_run(kind=START, prompt="x", actor=by, now=NOW, **more)

    mine = order()
    assert SessionOwner.objects.get().person == "anna"
    call(Session.objects.get(pk=mine.session_id))
    add(amount=1, reach="person", name="anna")
    before = Session.objects.count()
    with pytest.raises(Conflict, match="The budget of 1 tool calls a day for anna is used up"):
        order()
    assert Session.objects.count() == before
    order(Actor("user", "bob"))
    with pytest.raises(Conflict):  # it is hers, whoever orders its next turn
        runs.queue_start_or_resume_run(
            kind=RESUME, session_id=mine.session_id, prompt="x", actor=Actor("user", "bob"), now=NOW
        )
    budgets.suspend_budget_for_today(Budget.objects.get().pk, actor=ANNA, now=NOW)
    order()


def test_a_page_of_a_run_says_why_it_is_refused() -> None:
    call(session())
    add(amount=1)
    client = signed_in("approver")
    answer = client.post("/ui/runs/new/", {"prompt": "x", "agent_name": ""}, follow=True)
    assert "is used up" in answer.content.decode()


def test_the_page_shows_use_and_what_is_not_known_and_takes_a_budget() -> None:
    admin, viewer = signed_in("admin"), signed_in("viewer")
    form = {"reach": "agent", "name": "codex", "measure": "tokens", "span": "day", "amount": "1000"}
    answer = admin.post("/ui/budgets/add/", form | {"at_limit": "ask"}, follow=True)
    assert answer.status_code == 200
    one = session()
    events.record_events(
        [
            NewEvent(
                event_type="model_request",
                session_id=one.pk,
                timestamp=instants.format_canonical_instant(timezone.now()),
                model="m",
                input_tokens=400,
                output_tokens=450,
            )
        ],
        timezone.now(),
    )
    call(session(2), now=timezone.now())
    page = " ".join(viewer.get("/ui/budgets/").content.decode().split())
    assert "850 tokens of 1,000 tokens a day (85 %)" in page
    assert "1 session reports no tokens and is not counted." in page
    assert 'value="85"' in page
    seen = " ".join(viewer.get(f"/ui/sessions/{one.pk}/").content.decode().split())
    assert "Budget nearly used" in seen
    budget = Budget.objects.get()
    assert viewer.post(f"/ui/budgets/{budget.pk}/allow/").status_code == 403
    assert admin.get(f"/ui/budgets/{budget.pk}/").status_code == 200
    assert admin.post(f"/ui/budgets/{budget.pk}/", {"amount": "-1", "at_limit": "ask"}).status_code == 422
    version = budgets.compute_budget_version(budget)
    admin.post(f"/ui/budgets/{budget.pk}/", {"amount": "5000", "at_limit": "hold", "version": version})
    assert Budget.objects.get().amount == 5000
    assert "Budget nearly used" not in viewer.get(f"/ui/budgets/of/{one.pk}/").content.decode()
    assert admin.post("/ui/budgets/add/", form | {"at_limit": "ask", "amount": "nan"}).status_code == 422


def test_looking_at_budgets_reads_sums_and_no_events() -> None:
    add(amount=1)
    add("tokens", amount=1, reach="agent", name="codex")
    one = session()
    call(one)
    in_force = policy.load_active_budgets()
    with CaptureQueriesContext(connection) as queries:
        policy.decide_by_budgets(in_force, ["codex"], one.pk, NOW)
    assert len(queries) == 3
    assert not any("event" in query["sql"] for query in queries)


def test_an_empty_page_tells_administrators_where_to_set_one() -> None:
    page = " ".join(signed_in("viewer").get("/ui/budgets/").content.decode().split())
    assert 'tool calls. <span class="for-admins">Set one below.</span>' in page


def test_a_stale_form_changes_nothing_and_keeps_what_was_typed() -> None:
    made = add(amount=5, at_limit="warn")
    admin, address = signed_in("admin"), f"/ui/budgets/{made.pk}/"
    version = read_version(admin.get(address).content.decode())  # loaded while it warns
    budgets.update_budget(made.pk, amount=5, at_limit="hold", actor=ANNA, now=NOW)
    for stale in ({"version": version}, {}):
        refused = admin.post(address, {"amount": "6", "at_limit": "warn"} | stale)
        assert refused.status_code == 409
        shown = refused.content.decode()
        assert "The budget was changed by somebody else since you loaded the page." in shown
        assert 'name="amount" value="6"' in shown
        assert read_version(shown) == stale.get("version", "")
        made.refresh_from_db()
        assert (made.amount, made.at_limit) == (5, "hold")
    version = read_version(admin.get(address).content.decode())
    assert admin.post(address, {"amount": "6", "at_limit": "hold", "version": version}).status_code == 302
    made.refresh_from_db()
    assert made.amount == 6
    assert AuditLog.objects.filter(event_type="BUDGET_CHANGED").count() == 2


def read_version(page: str) -> str:
    """Return the version that a form sends along."""
    (version,) = re.findall(r'name="version" value="([^"]*)"', page)
    return str(version)
