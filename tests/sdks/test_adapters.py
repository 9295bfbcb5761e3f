"""Agents of real SDKs ask a real Signalbox, with the code of the help page SDKs; a person decides on the page."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.agents.asking import decide
from tests.agents.real_agents import KEY_OF_A_MODEL
from tests.agents.scripted_models import Use, scripted
from tests.patience import PATIENCE
from tests.sdks.environments import require_sdks
from tests.served import KEYS, ROOT, Served

pytestmark = [pytest.mark.served, pytest.mark.real_agent, pytest.mark.one_engine]

PAGE = (ROOT / ".docs/sdk.md").read_text()
HEADINGS = {
    "adk": "Google ADK",
    "claude": "Claude Agent SDK",
    "langgraph": "LangGraph",
    "openai": "OpenAI Agents SDK",
    "pydantic": "Pydantic AI",
}
CANNOT_EDIT = {"openai"}
MOST_LINES = 10
CLAUDE = {
    "ANTHROPIC_API_KEY": KEY_OF_A_MODEL,
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "ENABLE_TOOL_SEARCH": "false",
}


def page_blocks(heading: str) -> list[str]:
    """Return the blocks of Python below a heading of the page: of a run that waits, and of one that resumes."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return re.findall(r"```python\n(.*?)```", section, re.DOTALL)


# An SDK, and which block: the last one is of a run that another process can resume.
CASES = [(sdk, block) for sdk, heading in HEADINGS.items() for block in range(len(page_blocks(heading)))]
cases = pytest.mark.parametrize(("sdk", "block"), CASES)
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def box(served: Served) -> Served:
    return served.emptied("permission_requests", "permission_context")


@pytest.fixture
def start(box: Served, tmp_path: Path) -> Iterator[Start]:
    """A function that starts the program of an SDK; what it wrote and keeps is in `tmp_path`."""
    python, started = require_sdks(), []

    contexts = contextlib.ExitStack()
    model = contexts.enter_context(scripted(Use("delete_file", {"path": "report.txt"})))

    def start_program(sdk: str, block: int, text: str = "") -> subprocess.Popen[str]:
        """Start it with a block of the page, or with other code that does the same as that block."""
        blocks = page_blocks(HEADINGS[sdk])
        way = "resumes" if block % len(blocks) == len(blocks) - 1 else "waits"
        code = tmp_path / "code.py"
        code.write_text(text or blocks[block])
        process = subprocess.Popen(
            [
                python,
                ROOT / "tests/sdks/agent_program.py",
                sdk,
                way,
                code,
                tmp_path / "ran",
                tmp_path / "state",
            ],
            env={
                "PATH": os.defpath,
                "HOME": str(tmp_path),
                "PYTHONPATH": str(ROOT / "coordinator/client/sdk"),
                "SIGNALBOX_URL": box.url,
                "SIGNALBOX_KEY": KEYS["agent"],
                **CLAUDE,
                "ANTHROPIC_BASE_URL": model.address,
            },
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        started.append(process)
        return process

    yield start_program
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.wait(PATIENCE)
        assert process.stdout is not None
        process.stdout.close()
    contexts.close()


def wait_for_request(box: Served, process: subprocess.Popen[str]) -> str:
    """Return the one request that waits."""
    deadline = time.monotonic() + 3 * PATIENCE
    while time.monotonic() < deadline:
        rows = box.sql("SELECT request_id FROM permission_requests WHERE status = 'pending'")
        if rows:
            assert len(rows) == 1
            return str(rows[0][0])
        assert process.poll() is None, process.stdout and process.stdout.read()
        time.sleep(0.05)
    raise AssertionError("no request waits")


def read_end(process: subprocess.Popen[str]) -> str:
    output, _ = process.communicate(timeout=3 * PATIENCE)
    assert process.returncode == 0, output
    return output


def ran(folder: Path) -> list[str]:
    file = folder / "ran"
    return file.read_text().split() if file.exists() else []


@cases
def test_the_code_on_the_page_is_short(sdk: str, block: int) -> None:
    lines = page_blocks(HEADINGS[sdk])[block].splitlines()
    assert len([line for line in lines if line.strip()]) <= MOST_LINES


@cases
def test_an_approved_call_runs_once_and_its_card_is_in_the_session(
    box: Served, start: Start, tmp_path: Path, sdk: str, block: int
) -> None:
    process = start(sdk, block)
    request_id = wait_for_request(box, process)
    assert ran(tmp_path) == []
    decide(box.sign_in("approver"), request_id, "approved")
    assert "removed report.txt" in read_end(process)
    assert ran(tmp_path) == ["report.txt"]
    assert box.sql(
        "SELECT s.executor_session_id FROM permission_context c JOIN sessions s ON s.session_id = c.session_id"
        " WHERE c.request_id = ?",
        (request_id,),
    ) == [("order-17",)]


REPORTING = [(sdk, block) for sdk, block in CASES if "report_run" in page_blocks(HEADINGS[sdk])[block]]


def test_each_adapter_reports() -> None:
    assert {sdk for sdk, _ in REPORTING} == set(HEADINGS)


@pytest.mark.parametrize(("sdk", "block"), REPORTING)
def test_the_card_s_session_has_the_call_its_result_the_words_and_the_tokens(
    box: Served, start: Start, sdk: str, block: int
) -> None:
    box.emptied("usage_requests", "event_origins", "events")
    process = start(sdk, block)
    request_id = wait_for_request(box, process)
    decide(box.sign_in("approver"), request_id, "approved")
    assert "removed report.txt" in read_end(process)
    rows = box.sql(
        "SELECT e.event_type, e.tool_name, e.tool_input, e.tool_output, e.content FROM events e"
        " JOIN permission_context c ON c.session_id = e.session_id WHERE c.request_id = ? ORDER BY e.id",
        (request_id,),
    )
    calls = [row for row in rows if row[0] == "pre_tool"]
    results = [row for row in rows if row[0] == "post_tool"]
    assert [(name.endswith("delete_file"), given) for _, name, given, *_ in calls] == [
        (True, '{"path":"report.txt"}')
    ], rows
    assert len(results) == 1
    assert "removed report.txt" in str(results[0])
    said = str([content for kind, *_, content in rows if kind == "message"])
    assert "Clean up" in said
    assert "Read: " in said or sdk == "claude"
    used = box.sql("SELECT sum(input_tokens) > 0, sum(output_tokens) > 0, count(*) FROM usage_requests")
    assert used == [(1, 1, 2)], used


@cases
def test_a_denied_call_does_not_run_and_the_model_reads_why(
    box: Served, start: Start, tmp_path: Path, sdk: str, block: int
) -> None:
    process = start(sdk, block)
    decide(box.sign_in("approver"), wait_for_request(box, process), "denied", reason="Not on a Friday.")
    assert "Not on a Friday." in read_end(process)
    assert ran(tmp_path) == []


@cases
def test_what_a_person_edited_is_what_runs(
    box: Served, start: Start, tmp_path: Path, sdk: str, block: int
) -> None:
    process = start(sdk, block)
    request_id, approver = wait_for_request(box, process), box.sign_in("approver")
    offered = 'name="edited"' in approver.get(f"/ui/approvals/{request_id}/").text
    assert offered == (sdk not in CANNOT_EDIT)
    if offered:
        decide(approver, request_id, "approved", edited='{"path": "old.txt"}', edited_field="")
        assert "removed old.txt" in read_end(process)
        assert ran(tmp_path) == ["old.txt"]


@pytest.mark.parametrize("sdk", HEADINGS)
def test_killed_while_it_waits_the_program_meets_the_same_request_again(
    box: Served, start: Start, tmp_path: Path, sdk: str
) -> None:
    process = start(sdk, -1)
    request_id = wait_for_request(box, process)
    process.kill()
    process.wait(PATIENCE)
    decide(box.sign_in("approver"), request_id, "approved")
    assert "removed report.txt" in read_end(start(sdk, -1))
    assert ran(tmp_path) == ["report.txt"]
    assert box.sql("SELECT request_id FROM permission_requests") == [(request_id,)]


# --- what the page only names -------------------------------------------------------------------------------

LANGGRAPH_ASYNC = """
import asyncio
from concurrent.futures import ThreadPoolExecutor
from langgraph.prebuilt import ToolNode
from signalbox_sdk.langgraph import approve_tool, approve_tool_async

tools = ToolNode(
    [delete_file], wrap_tool_call=approve_tool("order-17"), awrap_tool_call=approve_tool_async("order-17")
)

def run_until_done(graph, values, config):
    async def run():
        return await graph.builder.compile().ainvoke(values, config)
    with ThreadPoolExecutor() as threads:
        return threads.submit(asyncio.run, run()).result()
"""
LANGGRAPH_FORGED = """
from langgraph.prebuilt import ToolNode
from langgraph.types import Command
from signalbox_sdk.langgraph import interrupt_tool

tools = ToolNode([delete_file], wrap_tool_call=interrupt_tool("order-17"))

def run_until_done(graph, values, config):
    graph.invoke(values, config)
    (item,) = graph.get_state(config).interrupts
    return graph.invoke(Command(resume={item.id: "decided"}), config)
"""
ADK_TOOLS = """
from google.adk.agents import LlmAgent
from signalbox_sdk.adk import %(callback)s

agent = LlmAgent(
    name="cleaner", model=model, tools=[delete_file],
    before_tool_callback=%(callback)s("order-17", tools={"%(tool)s"}),
)

async def run_until_done(runner, events, message=None):
    run = runner.run_async(user_id="ann", session_id="order-17", new_message=message)
    return [event async for event in run]
"""
CLAUDE_TIMEOUT = """
from claude_agent_sdk import ClaudeAgentOptions
from signalbox_sdk.claude import approve_hook

hooks = {"PreToolUse": [approve_hook("order-17", matcher="mcp__files__.*", timeout=1)]}
options = ClaudeAgentOptions(mcp_servers={"files": server}, hooks=hooks, allowed_tools=["mcp__files__delete_file"])
"""


@pytest.mark.parametrize("decision", ["approved", "denied"])
def test_langgraph_waits_in_an_event_loop(box: Served, start: Start, tmp_path: Path, decision: str) -> None:
    process = start("langgraph", -1, LANGGRAPH_ASYNC)
    request_id = wait_for_request(box, process)
    assert ran(tmp_path) == []
    decide(box.sign_in("approver"), request_id, decision)
    read_end(process)
    assert ran(tmp_path) == (["report.txt"] if decision == "approved" else [])


def test_a_forged_resume_value_approves_nothing(box: Served, start: Start, tmp_path: Path) -> None:
    process = start("langgraph", -1, LANGGRAPH_FORGED)
    assert "Nobody has decided in Signalbox yet" in read_end(process)
    assert ran(tmp_path) == []
    assert box.sql("SELECT status FROM permission_requests") == [("pending",)]


@pytest.mark.parametrize("callback", ["approve_tool", "confirm_tool"])
def test_adk_asks_about_the_named_tools_alone(
    box: Served, start: Start, tmp_path: Path, callback: str
) -> None:
    process = start("adk", -1, ADK_TOOLS % {"callback": callback, "tool": "another_tool"})
    assert "removed report.txt" in read_end(process)
    assert ran(tmp_path) == ["report.txt"]
    assert box.sql("SELECT request_id FROM permission_requests") == []


def test_adk_asks_about_a_named_tool(box: Served, start: Start, tmp_path: Path) -> None:
    process = start("adk", -1, ADK_TOOLS % {"callback": "approve_tool", "tool": "delete_file"})
    decide(box.sign_in("approver"), wait_for_request(box, process), "denied")
    read_end(process)
    assert ran(tmp_path) == []


def test_a_hook_of_claude_s_that_waited_too_long_lets_nothing_run(
    box: Served, start: Start, tmp_path: Path
) -> None:
    process = start("claude", 1, CLAUDE_TIMEOUT)
    assert "Nobody has decided in Signalbox yet" in read_end(process)
    assert ran(tmp_path) == []
    assert box.sql("SELECT status FROM permission_requests") == [("pending",)]


CLAUDE_FAILURES = {
    "misses its deadline": "claude.EXTRA_SECONDS = -57",  # 3 s, in which nobody answers
    "raises": "claude.ask_about_call = None",
}


@pytest.mark.parametrize("failure", CLAUDE_FAILURES)
def test_a_hook_of_claude_s_that_fails_lets_nothing_run(
    box: Served, start: Start, tmp_path: Path, failure: str
) -> None:
    change = f"from signalbox_sdk import claude\n{CLAUDE_FAILURES[failure]}\n"
    read_end(start("claude", 1, change + CLAUDE_TIMEOUT.replace("timeout=1", "timeout=60")))
    assert ran(tmp_path) == []
    assert box.sql("SELECT request_id FROM permission_requests WHERE status = 'approved'") == []


def test_calls_that_an_sdk_describes_incompletely_are_denied() -> None:
    program = ROOT / "tests/sdks/incomplete_calls.py"
    environment = {"PATH": os.defpath, "PYTHONPATH": str(ROOT / "coordinator/client/sdk")}
    command = [require_sdks(), program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout)
    assert len(answers) == 10
    for name, answer in answers.items():
        assert "did not run" in answer or "reject_content" in answer, (name, answer)


@pytest.mark.parametrize("sdk", ["openai", "adk"])
def test_a_server_that_takes_no_reports_stops_no_run(
    box: Served, start: Start, tmp_path: Path, sdk: str
) -> None:
    code = page_blocks(HEADINGS[sdk])[0].replace(
        'report_run("order-17")', 'report_run("order-17", connection=Connection("http://127.0.0.1:1"))'
    )
    process = start(sdk, 0, f"from signalbox_sdk import Connection\n{code}")
    decide(box.sign_in("approver"), wait_for_request(box, process), "approved")
    assert "removed report.txt" in read_end(process)
    assert ran(tmp_path) == ["report.txt"]
