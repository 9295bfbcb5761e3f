"""Procedural agents: scripts that a runner brings, which take arguments instead of a prompt and keep nothing."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.actions import runs
from coordinator.actions.sessions import events
from coordinator.models import Run, RunParameters
from coordinator.sessions.events import NewEvent
from tests.runs.fleet import Fleet
from tests.wire.test_defects import Api

pytestmark = pytest.mark.django_db

SCHEMA = {
    "type": "object",
    "properties": {"stdout": {"type": "string"}, "json": {"type": "boolean"}},
    "additionalProperties": False,
}
TOKEN = "ghp_" + "a1B2" * 9


def brings(*agents: dict[str, Any], command: str = "run-script") -> dict[str, Any]:
    return {
        "executor": {"type": "procedural", "command": command, "config": {}, "lifecycle": "one_shot"},
        "extra": {"agents": list(agents)},
    }


ECHO = {"name": "echo", "description": "Says it", "command": "scripts/echo", "parameters_schema": SCHEMA}


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


@pytest.fixture
def api() -> Api:
    return Api()


def start(api: Api, status: int = 201, **order: Any) -> Any:
    return api("POST", "/runs", {"type": "start_session", **order}, status)


def test_an_agent_that_a_runner_brings_is_listed_while_the_runner_is_there(fleet: Fleet, api: Api) -> None:
    api("POST", "/agents", {"name": "writer", "description": "Writes"}, 201)
    runner = fleet.runner("scripts", **brings(ECHO, {"name": 5}))
    listed = api("GET", "/agents")
    assert [(one["name"], one["type"]) for one in listed] == [
        ("writer", "autonomous"),
        ("echo", "procedural"),
    ]
    shown = api("GET", "/agents/echo")
    assert (shown["command"], shown["runner_id"]) == ("scripts/echo", runner.runner_id)
    assert shown["parameters_schema"] == SCHEMA
    runner.delete()
    api("GET", "/agents/echo", status=404)


def test_its_arguments_reach_its_own_runner(fleet: Fleet, api: Api) -> None:
    agents, scripts = fleet.runner("agents"), fleet.runner("scripts", **brings(ECHO))
    twin = fleet.runner("scripts", **brings({"name": "other"}, command="another"))
    made = start(api, agent_name="echo", parameters={"stdout": "Hello"})
    assert [fleet.poll(agents), fleet.poll(twin)] == [None, None]
    answer = fleet.poll(scripts)
    assert answer is not None
    run = answer["run"]
    assert (run["run_id"], run["parameters"], run["prompt"]) == (made["run_id"], {"stdout": "Hello"}, "")
    assert run["demands"] == {
        "hostname": "scripts",
        "project_dir": scripts.project_dir,
        "executor_profile": "test-executor",
        "executor_type": "procedural",
        "tags": [],
    }
    assert run["resolved_agent_blueprint"]["command"] == "scripts/echo"


def test_a_run_for_any_agent_is_not_for_scripts(fleet: Fleet, api: Api) -> None:
    scripts, agents = fleet.runner("scripts", **brings(ECHO)), fleet.runner("agents")
    start(api, prompt="think")
    start(api, parameters={"prompt": "think too"})
    assert fleet.poll(scripts) is None
    assert fleet.poll(agents)


def test_what_the_agent_does_not_take_is_refused_with_the_reason(fleet: Fleet, api: Api) -> None:
    fleet.runner("scripts", **brings(ECHO))
    detail = start(api, 400, agent_name="echo", parameters={"bogus": 1})["detail"]
    assert (detail["error"], detail["agent_name"]) == ("parameter_validation_failed", "echo")
    assert detail["validation_errors"] == [
        {
            "path": "$",
            "message": "Additional properties are not allowed ('bogus' was unexpected)",
            "schema_path": "additionalProperties",
        }
    ]
    assert detail["parameters_schema"] == SCHEMA
    without = start(api, 400, parameters={})["detail"]
    assert (without["agent_name"], without["validation_errors"][0]["schema_path"]) == (
        "(no agent)",
        "required",
    )
    assert not Run.objects.exists()


@pytest.mark.parametrize(
    "schema",
    [{"$ref": "http://127.0.0.1:1/x"}, {"type": 5}, {"$ref": "#"}, {"x": "y" * 70_000}],
    ids=["fetches", "is none", "goes round", "is too large"],
)
def test_a_schema_that_cannot_be_applied_is_an_answer(fleet: Fleet, api: Api, schema: dict[str, Any]) -> None:
    fleet.runner("scripts", **brings({"name": "odd", "parameters_schema": schema}))
    assert "odd" in start(api, 400, agent_name="odd", parameters={"a": 1})["detail"]


def test_a_pattern_of_a_runner_is_left_to_its_agent(fleet: Fleet, api: Api) -> None:
    schema = {"properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}}
    fleet.runner("scripts", **brings({"name": "slow", "parameters_schema": schema}))
    start(api, agent_name="slow", parameters={"a": "a" * 40 + "!"})


def test_it_cannot_be_resumed(fleet: Fleet, api: Api) -> None:
    runner = fleet.runner("scripts", **brings(ECHO))
    made = start(api, agent_name="echo", parameters={"stdout": "x"})
    order = {"type": "resume_session", "session_id": made["session_id"], "parameters": {"prompt": "x"}}
    detail = api("POST", "/runs", order, 400)["detail"]
    assert (detail["error"], detail["agent_name"]) == ("procedural_agent_no_resume", "echo")
    runner.delete()  # and with it the agent's description
    assert api("POST", "/runs", order, 400)["detail"] == detail


def test_its_result_is_data(fleet: Fleet, api: Api) -> None:
    runner = fleet.runner("scripts", **brings(ECHO))
    made = start(api, agent_name="echo", parameters={"stdout": "ok", "json": True})
    run = fleet.running(runner, Run.objects.get(pk=made["run_id"]))
    result = NewEvent(
        event_type="result",
        session_id=run.session_id,
        timestamp=fleet.tick().isoformat(),
        result_data={"n": [1]},
    )
    events.record_events([result], fleet.tick())
    runs.record_run_completed(run.run_id, runner, fleet.tick(), session_status="finished")
    path = f"/sessions/{run.session_id}"
    assert api("GET", f"{path}/result") == {
        "result": '{"n": [1]}',
        "result_text": None,
        "result_data": {"n": [1]},
    }
    told = api("GET", f"{path}/events")["events"]
    assert [(one["event_type"], one["result_data"], one["tool_output"]) for one in told] == [
        ("run_start", None, None),
        ("result", {"n": [1]}, None),
        ("run_completed", None, None),
    ]


def test_secrets_in_arguments_reach_the_runner_alone(fleet: Fleet, api: Api) -> None:
    runner = fleet.runner("scripts", **brings(ECHO))
    made = start(api, agent_name="echo", parameters={"stdout": TOKEN})
    assert TOKEN not in str(api("GET", f"/runs/{made['run_id']}"))
    answer = fleet.poll(runner)
    assert answer is not None
    assert answer["run"]["parameters"] == {"stdout": TOKEN}
    runs.record_run_completed(made["run_id"], runner, fleet.tick())
    assert TOKEN not in str(RunParameters.objects.get(pk=made["run_id"]).parameters)


def test_a_blueprint_may_be_procedural_or_say_what_it_takes(fleet: Fleet, api: Api) -> None:
    fleet.runner("scripts", **brings({"name": "deploy"}))
    schema = {"type": "object", "required": ["prompt", "branch"]}
    made = {"name": "builder", "description": "", "parameters_schema": schema}
    assert api("POST", "/agents", made, 201)["type"] == "autonomous"
    start(api, 400, agent_name="builder", parameters={"prompt": "x"})
    run = start(api, agent_name="builder", parameters={"prompt": "x", "branch": "main"})
    assert api("GET", f"/runs/{run['run_id']}")["parameters"] == {"prompt": "x", "branch": "main"}
    api("POST", "/agents", {"name": "job", "description": "", "type": "procedural"}, 201)
    ordered = start(api, agent_name="job", parameters={"anything": 1})
    assert api("GET", f"/runs/{ordered['run_id']}")["demands"] == {"executor_type": "procedural", "tags": []}


def test_capabilities_say_what_they_bring(api: Api) -> None:
    api("POST", "/capabilities", {"name": "words", "description": "", "text": "t"}, 201)
    api("POST", "/capabilities", {"name": "tool", "description": "", "type": "script", "script": "lint"}, 201)
    listed = {one["name"]: one for one in api("GET", "/capabilities")}
    assert [listed["words"][name] for name in ("type", "has_script", "script_name")] == ["text", False, None]
    assert [listed["tool"][name] for name in ("type", "has_script", "script_name")] == [
        "script",
        True,
        "lint",
    ]
    assert api("GET", "/capabilities/tool")["script"] == "lint"
