"""While a brake is on nothing passes; once a person releases it, what waited goes on."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import httpx
import pytest
from django.db import OperationalError
from django.utils import timezone

from coordinator.actions import approvals, runs
from coordinator.actions.policy import brakes
from coordinator.actions.runs import stopping
from coordinator.actions.runs.claiming import claim_next_run
from coordinator.edge.policy.rulings import build_brake_ruling
from coordinator.errors import BadRequest, Conflict, Forbidden, UnprocessableRequest
from coordinator.identity.actors import Actor, key_actor_by_name, person_actor, system_actor
from coordinator.models import AuditLog, Brake, PermissionRequest, Session
from coordinator.operations.jobs import run_and_list_due_jobs
from coordinator.policy.limits import brakes as policy
from coordinator.policy.requests.approvals import PermissionSubject
from coordinator.runs.waits import RunQueueState
from tests.claude_code.double import Claude
from tests.people import person as somebody
from tests.people import signed_in
from tests.runs.fleet import Fleet
from tests.served import Served, running

AT_ONCE = 50


@pytest.fixture(scope="module")
def served(served_template: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    with running(served_template, tmp_path_factory.mktemp("braked") / "server") as server:
        yield server


@pytest.fixture
def approver(served: Served) -> Any:
    browser = served.sign_in("approver")
    yield browser
    served.sql("DELETE FROM brakes")


def put_on(browser: httpx.Client, reach: str = "everything", name: str = "") -> int:
    form = {"reach": reach, "name": name, "is_meant": "on", "reason": "Odd calls."}
    answer = browser.post("/ui/brake/put-on/", data=form)
    assert answer.status_code == 200, answer.text
    assert "The brake is on" in answer.text
    return int(answer.text.split("/release/")[0].rsplit("/", 1)[1])


def release(browser: httpx.Client, brake_id: int) -> None:
    assert browser.post(f"/ui/brake/{brake_id}/release/").status_code == 200


@pytest.mark.served
def test_none_of_fifty_calls_passes_after_the_commit_until_the_brake_is_released(
    served: Served, approver: httpx.Client
) -> None:
    agents = [Claude(served, wait="50") for _ in range(AT_ONCE)]
    answered: list[float] = []

    def call(claude: Claude) -> None:
        assert claude.before(claude.new_call("Bash", {"command": "make deploy"})) == {}
        answered.append(time.monotonic())

    brake = put_on(approver)
    began = time.monotonic()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        calls = [pool.submit(call, claude) for claude in agents]
        while served.sql("SELECT count(*) FROM events WHERE event_type = 'pre_tool'")[0][0] < AT_ONCE:
            assert time.monotonic() - began < 60
            time.sleep(0.05)
        released = time.monotonic()
        release(approver, brake)
        for one in calls:
            one.result(60)
    assert min(answered) >= released


@pytest.mark.served
def test_a_call_that_cannot_wait_longer_is_denied_in_words(served: Served, approver: httpx.Client) -> None:
    put_on(approver, "agent", "claude-code")
    claude = Claude(served, wait="1")
    denied = claude.before(claude.new_call("Bash", {"command": "ls"}))
    assert denied["permissionDecision"] == "deny"
    assert "approver put the brake on the agent claude-code: Odd calls." in denied["permissionDecisionReason"]


@pytest.mark.served
def test_a_brake_on_another_host_lets_the_call_pass(served: Served, approver: httpx.Client) -> None:
    put_on(approver, "host", "build-7")
    claude = Claude(served, wait="1", host="laptop")
    assert claude.before(claude.new_call("Bash", {"command": "ls"})) == {}
    assert Claude(served, wait="1", host="build-7").before(claude.new_call("Bash", {"command": "ls"})) != {}


@pytest.mark.served
@pytest.mark.parametrize("said", ["", "$HOSTNAME"])
def test_a_hook_that_says_no_host_is_held_where_its_session_is_known_or_may_be(
    served: Served, approver: httpx.Client, said: str
) -> None:
    agents = {host: Claude(served, wait="1") for host in ("build-7", "laptop", "")}
    for host, claude in agents.items():
        claude.headers["X-Signalbox-Host"] = host  # as the command hook says it
        claude.start()
        claude.headers["X-Signalbox-Host"] = said  # as a shell does that does not export its name
    put_on(approver, "host", "build-7")
    answers = {
        host: claude.before(claude.new_call("Bash", {"command": "ls"})) for host, claude in agents.items()
    }
    held = {host: answer.get("permissionDecision") for host, answer in answers.items()}
    assert held == {"build-7": "deny", "laptop": None, "": "deny"}


@pytest.mark.served
def test_an_agent_that_asks_for_access_is_told_of_the_brake(served: Served, approver: httpx.Client) -> None:
    served.sql(
        "INSERT INTO mcp_servers (name, command, default_policy, created_at) VALUES ('free', 'x', 'opt-out', 1)"
    )
    question = {"server_id": "free", "tool_name": "look", "agent_id": "agent.x"}
    with served.client("operator") as client:
        assert client.post("/api/access/check", json=question).json()["verdict"] == "allow"
        put_on(approver)
        told = client.post("/api/access/check", json=question).json()
    assert (told["verdict"], told["source"]) == ("deny", "brake")


@pytest.mark.served
def test_access_is_denied_to_an_agent_that_may_be_on_a_braked_host(
    served: Served, approver: httpx.Client
) -> None:
    served.sql(
        "INSERT INTO mcp_servers (name, command, default_policy, created_at) VALUES ('open', 'x', 'opt-out', 1)"
    )
    question = {"server_id": "open", "tool_name": "look", "agent_id": "agent.y"}
    put_on(approver, "host", "build-7")
    with served.client("operator") as client:
        told = client.post("/api/access/check", json={"checks": [question]}).json()["results"]
    assert [one["source"] for one in told] == ["brake"]


@pytest.mark.django_db
class TestInTheDatabase:
    def put_on(self, reach: str = "everything", name: str = "") -> brakes.BrakeResult:
        return brakes.apply_brake_and_stop_runs(
            reach, name, "", actor=person_actor(self.anna), now=timezone.now()
        )

    @pytest.fixture(autouse=True)
    def people(self, db: None) -> None:
        self.anna = somebody("approver", "anna")

    def test_nothing_is_approved_while_it_is_on_but_denied_it_can_be(self) -> None:
        asked = [
            approvals.request_permission(
                approvals.NewPermissionRequest(
                    PermissionSubject("p", "FileRead", target), justification="Why."
                ),
                actor=key_actor_by_name("k"),
            ).request.request_id
            for target in ("a", "b")
        ]
        brake = self.put_on()
        with pytest.raises(Conflict, match="the brake is on"):
            approvals.decide_request(asked[0], person=self.anna, verdict="approved")
        assert PermissionRequest.objects.get(request_id=asked[0]).status == "pending"
        approvals.decide_request(asked[1], person=self.anna, verdict="denied")
        brakes.lift_brake(brake.id, actor=person_actor(self.anna), now=timezone.now())
        assert approvals.decide_request(asked[0], person=self.anna, verdict="approved").status == "approved"

    def test_a_host_s_brake_holds_agents_at_work_there_and_those_of_whom_nobody_knows_where(self) -> None:
        for number, (agent, host) in enumerate([("here", "h"), ("there", "other"), ("hidden", None)]):
            name = f"ses_{number:012x}"
            Session.objects.create(
                session_id=name, status="running", created_at=timezone.now(), agent_name=agent, hostname=host
            )
        self.put_on("host", "h")
        held = {
            one: policy.find_brake_on_agent(one, ()) is not None
            for one in ("here", "there", "hidden", "idle")
        }
        assert held == {"here": True, "there": False, "hidden": True, "idle": True}

    @pytest.mark.parametrize(("host", "is_held"), [("h", True), ("other", False), (None, True)])
    def test_what_names_no_host_is_approved_only_where_its_session_is_not_on_a_braked_one(
        self, host: str | None, is_held: bool
    ) -> None:
        session = Session.objects.create(
            session_id="ses_00000000abcd", status="running", created_at=timezone.now(), hostname=host
        )
        asked = approvals.request_permission(
            approvals.NewPermissionRequest(
                PermissionSubject("p", "FileRead", "a"), "Why.", session_id=session.pk
            ),
            actor=key_actor_by_name("k"),
        ).request
        self.put_on("host", "h")
        with pytest.raises(Conflict, match="the brake is on") if is_held else nullcontext():
            approvals.decide_request(asked.request_id, person=self.anna, verdict="approved")

    def test_no_run_begins_and_a_running_turn_is_stopped(self) -> None:
        fleet = Fleet()
        runner = fleet.runner("h")
        at_work = fleet.running(runner, fleet.start())
        Session.objects.filter(pk=at_work.session_id).update(hostname="h")
        brake = self.put_on("host", "h")
        assert brake.stopped == 1
        assert fleet.fresh(at_work).status == "stopping"
        fleet.stopped(runner, at_work)
        waiting = fleet.start()
        assert fleet.poll(runner) is None
        assert (
            RunQueueState.load_queue_state(fleet.now).explain_waiting_run(waiting)
            == "The brake is on. The run starts once a person releases it."
        )
        brakes.lift_brake(brake.id, actor=person_actor(self.anna), now=timezone.now())
        assert fleet.poll(runner)["run"]["run_id"] == waiting.run_id

    def test_a_brake_on_a_program_holds_the_runs_of_a_driven_agent(self) -> None:
        fleet = Fleet()
        executor = {"type": "autonomous", "command": "signalbox runner", "lifecycle": "persistent"}
        agents = [{"name": "claude"}, {"name": "codex"}]
        runner = fleet.runner("h", executor=executor, offers={"agents": agents, "directories": ["/"]})
        at_work = fleet.running(runner, fleet.start(parameters={"prompt": "x", "agent": "claude"}))
        brake = self.put_on("agent", "claude-code")
        assert brake.stopped == 1
        assert fleet.fresh(at_work).status == "stopping"
        held = fleet.start(parameters={"prompt": "x", "agent": "claude"})
        free = fleet.start(parameters={"prompt": "x", "agent": "codex"})
        assert fleet.poll(runner) is not None  # the stop
        with pytest.raises(Forbidden):
            runs.record_start_or_order_stop(
                held.run_id, runner, fleet.tick()
            )  # a runner that does not wait until it may
        assert fleet.fresh(held).status == "pending"
        assert claim_next_run(runner, fleet.tick()).run_id == free.run_id

    def test_what_was_claimed_while_it_was_put_on_is_stopped_a_moment_later(self) -> None:
        fleet = Fleet()
        at_work = fleet.running(fleet.runner("h"), fleet.start())
        elsewhere = fleet.running(fleet.runner("other"), fleet.start())
        Brake.objects.create(reach="host", name="h", set_at=fleet.now, set_by="user:anna")
        run_and_list_due_jobs(fleet.tick())
        assert [fleet.fresh(one).status for one in (at_work, elsewhere)] == ["stopping", "running"]
        assert AuditLog.objects.get(event_type="RUN_STOPPED").actor_id == "system:brake"

    def test_runs_that_could_not_be_stopped_keep_no_others_and_are_stopped_later(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fleet = Fleet()
        at_work = [fleet.running(fleet.runner(host), fleet.start()) for host in ("a", "b", "c")]
        stop = stopping.request_run_stop

        def fails(run_id: str, **said: Any) -> Any:
            if run_id == at_work[0].run_id:
                raise OperationalError("the database is away")
            return stop(run_id, **said)

        monkeypatch.setattr(stopping, "request_run_stop", fails)
        assert self.put_on().stopped == 0
        run_and_list_due_jobs(fleet.tick())
        assert [fleet.fresh(one).status for one in at_work] == ["running", "stopping", "stopping"]
        monkeypatch.undo()
        fleet.now += timedelta(seconds=3)
        run_and_list_due_jobs(fleet.now)
        assert fleet.fresh(at_work[0]).status == "stopping"

    def test_runs_of_others_count_for_nothing_among_those_that_are_stopped(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(brakes, "MOST_STOPPED", 1)
        fleet = Fleet()
        free, held = [fleet.running(fleet.runner(host), fleet.start()) for host in ("a", "b")]
        assert self.put_on("host", "b").stopped == 1
        assert [fleet.fresh(one).status for one in (free, held)] == ["running", "stopping"]

    def test_only_people_put_it_on_and_release_it(self) -> None:
        for program in (key_actor_by_name("k"), system_actor("s")):
            with pytest.raises(BadRequest):
                brakes.apply_brake_and_stop_runs("everything", "", "", actor=program, now=timezone.now())
            with pytest.raises(BadRequest):
                brakes.lift_brake(self.put_on("host", str(program)).id, actor=program, now=timezone.now())

    def test_it_is_put_on_once_and_released_once_and_both_are_audited(self) -> None:
        brake = self.put_on()
        with pytest.raises(Conflict, match="already on"):
            self.put_on()
        brakes.lift_brake(brake.id, actor=person_actor(self.anna), now=timezone.now())
        with pytest.raises(Conflict, match="already released it"):
            brakes.lift_brake(brake.id, actor=person_actor(self.anna), now=timezone.now())
        told = AuditLog.objects.filter(target_id=f"brake:{brake.id}").order_by("id")
        assert [(row.event_type, row.actor_id) for row in told] == [
            ("BRAKE_PUT_ON", "user:anna"),
            ("BRAKE_RELEASED", "user:anna"),
        ]

    @pytest.mark.parametrize(
        ("reach", "name"), [("everything", "x"), ("agent", " "), ("moon", "x"), ("host", "")]
    )
    def test_what_names_nothing_is_refused(self, reach: str, name: str) -> None:
        with pytest.raises(UnprocessableRequest):
            self.put_on(reach, name)
        assert not Brake.objects.exists()

    def test_every_page_says_that_it_is_on(self) -> None:
        self.put_on("host", "build-7")
        page = signed_in("viewer").get("/ui/sessions/").content.decode()
        assert "The brake is on" in page
        assert "build-7" in page

    def test_a_brake_that_another_program_wrote_holds_everything(self) -> None:
        Brake.objects.create(reach="??", name="", set_at=timezone.now(), set_by="x")
        held = policy.find_brake_on_call(("a",), "h")
        assert held is not None
        assert build_brake_ruling(held).decision == "deny"


@pytest.mark.django_db
def test_who_loses_a_race_to_release_a_brake_is_told_who_was_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    now = timezone.now()
    brake = brakes.apply_brake_and_stop_runs("everything", "", "Stop.", actor=Actor("user", "ann"), now=now)
    as_it_was = Brake.objects.get(pk=brake.id)
    brakes.lift_brake(brake.id, actor=Actor("user", "bob"), now=now)
    rows = Brake.objects.filter(pk=brake.id)
    monkeypatch.setattr(type(rows), "first", lambda _rows: as_it_was)  # read just before bob released it
    with pytest.raises(Conflict, match="user:bob has already released it"):
        brakes.lift_brake(brake.id, actor=Actor("user", "carol"), now=now)
