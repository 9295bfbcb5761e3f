"""Through whatever door a secret comes, none is in the database afterwards; agents get back what they need."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.approvals.cards import served_form
from tests.claude_code.double import Claude
from tests.claude_code.test_deciding import decide, pending
from tests.claude_code.test_telemetry import log, logs
from tests.secrets.corpus import SECRETS
from tests.served import KEYS, Served, running

pytestmark = pytest.mark.served

TOKEN, WORD = SECRETS["github"], "canary-" + SECRETS["word"]
COMMAND = f"curl -H 'Authorization: Bearer {TOKEN}' --data password={WORD} https://api.example"


@pytest.fixture(scope="module")
def served(served_template: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    with running(served_template, tmp_path_factory.mktemp("masking") / "server") as server:
        yield server


@pytest.fixture
def claude(served: Served) -> Claude:
    claude = Claude(served, wait="100")
    claude.prompt(f"Use {TOKEN}.")
    return claude


def stored(served: Served) -> str:
    """Return every text column that agents' words may be in, as one text."""
    found: list[Any] = []
    for table in ("events", "event_context", "sessions", "permission_requests", "permission_context", "audit_logs",
                  "event_origins", "idempotency_keys", "changes", "message_parts"):  # fmt: skip
        found += served.sql(f"SELECT * FROM {table}")
    return repr(found)


def event(session_id: str, **fields: Any) -> dict[str, Any]:
    return {"session_id": session_id, "timestamp": "2026-03-01T10:00:00Z", **fields}


def test_no_door_lets_a_secret_into_the_database(served: Served, claude: Claude) -> None:
    http = served.client()
    session_id = served.sql("SELECT session_id FROM sessions")[0][0]
    call = {"event_type": "pre_tool", "tool_name": "Bash", "tool_input": {"command": COMMAND}}
    one = http.post(f"/sessions/{session_id}/events", json=event(session_id, **call))
    message = {"event_type": "message", "role": "user", "content": [{"type": "text", "text": COMMAND}]}
    result = {"event_type": "result", "result_text": COMMAND, "result_data": {"password": WORD}}
    large = {
        "event_type": "post_tool",
        "tool_name": "Bash",
        "tool_output": "x" * 100_000 + COMMAND,
        "error": COMMAND,
    }
    batch = http.post(
        "/api/events", json=[event(session_id, **message), event(session_id, **result), event(session_id, **large)],
        headers={"Idempotency-Key": "once"},
    )  # fmt: skip
    used = claude.new_call("Bash", {"command": COMMAND})
    claude.before(used)
    claude.hook("PostToolUse", tool_name="Bash", tool_input=used.tool_input, tool_use_id=used.id,
                tool_response={"stdout": COMMAND, "env": {"DB_PASSWORD": WORD}})  # fmt: skip
    claude.hook("SomethingNew", note=COMMAND, nested={"deep": [{"password": WORD}]})
    told = httpx.post(
        f"{served.url}/v1/logs",
        json=logs(log(claude, "api_request", 1, error=COMMAND, request_password=WORD, x=COMMAND)),
        headers={"Authorization": f"Bearer {KEYS['agent']}"},
    )
    asked = http.post(
        "/api/permission-requests",
        json={
            "plugin_id": "p", "permission_type": "Net", "tool_name": "t",
            "target_resource": f"https://bob:{WORD}@host/",
            "tool_input": {"command": COMMAND}, "justification": COMMAND, "metadata": {"password": WORD},
        },
    )  # fmt: skip

    assert [one.status_code, batch.json()["accepted"], told.status_code, asked.status_code] == [
        201,
        3,
        200,
        201,
    ]
    kept = stored(served)
    assert TOKEN not in kept
    assert WORD not in kept
    assert "[masked: GitHub token " in kept
    counted = served.sql(
        "SELECT c.masked FROM event_context c JOIN events e ON e.id = c.event_id"
        " WHERE e.event_type = 'message' AND e.content LIKE '%api.example%'"
    )
    assert counted == [(2,)]


def test_an_edited_call_runs_with_its_own_secrets(served: Served, claude: Claude) -> None:
    approver = served.sign_in("approver")
    call = claude.new_call("Bash", {"command": COMMAND, "timeout": 5})
    asking = claude.asking(call)
    [request] = pending(served, claude)
    [(told,)] = served.sql("SELECT tool_input FROM permission_context WHERE request_id = ?", (request,))
    shown = json.loads(told)["command"] if isinstance(told, str) else told["command"]
    page = approver.get(f"/ui/approvals/{request}/").text

    decide(approver, request, edited=shown.replace("curl", "curl --fail"), edited_field="command")

    assert TOKEN not in page + shown
    assert WORD not in page + shown
    assert asking.result()["updatedInput"] == {
        "command": COMMAND.replace("curl", "curl --fail"),
        "timeout": 5,
    }


def test_a_mask_that_stands_for_nothing_here_cannot_be_approved(served: Served, claude: Claude) -> None:
    approver = served.sign_in("approver")
    call = claude.new_call("Bash", {"command": "ls"})
    asking = claude.asking(call)
    [request] = pending(served, claude)
    edit = served_form(approver, request, edited="ls [masked: token 0123abcd]", edited_field="command")
    answer = approver.post("/ui/approvals/decide/", data=edit)

    assert "A masked secret was changed" in answer.text
    assert served.sql("SELECT status FROM permission_requests WHERE request_id = ?", (request,)) == [
        ("pending",)
    ]
    decide(approver, request, "denied")
    assert asking.result()["behavior"] == "deny"


def test_the_same_question_with_another_secret_is_another_question(served: Served) -> None:
    def ask(secret: str) -> str:
        body = {"plugin_id": "p", "permission_type": "Net", "tool_name": "t", "justification": "x",
                "tool_input": {"command": f"login --token {secret}"}}  # fmt: skip
        return str(served.client().post("/api/permission-requests", json=body).json()["request_id"])

    with ThreadPoolExecutor(4) as several:
        first, again, other = several.map(ask, [TOKEN, TOKEN, SECRETS["github_app"]])
    assert first == again != other


def test_the_timeline_says_what_was_masked(served: Served, claude: Claude) -> None:
    claude.hook("PostToolUse", tool_name="Bash", tool_input={"command": COMMAND}, tool_use_id="toolu_x")
    [(session_id,)] = served.sql(
        "SELECT session_id FROM sessions WHERE executor_session_id = ?", (claude.session,)
    )
    page = served.sign_in("viewer").get(f"/ui/sessions/{session_id}/").text
    assert "2 secrets masked" in page
    assert "<dt>Masked</dt>" in page
    assert TOKEN not in page


def test_masking_can_be_switched_off(serve: Any) -> None:
    open_hearted = serve(workers=1, SIGNALBOX_MASK_SECRETS="off")
    claude = Claude(open_hearted)
    claude.prompt(f"Use {TOKEN}.")
    assert TOKEN in stored(open_hearted)
    assert open_hearted.sql("SELECT max(masked) FROM event_context") == [(0,)]
