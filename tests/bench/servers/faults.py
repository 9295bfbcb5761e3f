"""What must be nothing at the end."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections import Counter

from tests.bench.servers.ledger import Load
from tests.bench.servers.troubles import Troubles
from tests.served import Served

Found = dict[str, list[str]]
UNTROUBLED = "refused while there was no trouble"
STRANGE = "strange answers"
FAILED = "threads that failed"


def all_faults(load: Load, troubles: Troubles) -> Found:
    """Return what must be nothing, by name."""
    return events(load) | runs(load) | verdicts(load) | calls(load) | answers(load, troubles)


def unsettled(found: Found) -> list[str]:
    """Return the kinds of faults that may still come right: a stream may lag behind, a run end."""
    return [name for name, items in found.items() if items and name not in {UNTROUBLED, STRANGE, FAILED}]


def events(load: Load) -> Found:
    """Events that were acknowledged and are not there once, and streams that did not hear each once."""
    acknowledged = load.ledger.acknowledged
    rows = load.database.sql(
        "SELECT content FROM events WHERE session_id LIKE 'ses_bench%' AND event_type = 'message'"
    )
    stored = Counter(json.loads(content)[0]["text"] for (content,) in rows)
    heard = load.ledger.heard
    return {
        "events lost": [text for text in acknowledged if not stored[text]],
        "events doubled": [text for text, times in stored.items() if times > 1],
        "events missed by a stream": [text for one in heard for text in set(acknowledged) - set(one)],
        "events heard twice": [text for one in heard for text, times in Counter(one).items() if times > 1],
    }


def runs(load: Load) -> Found:
    """Runs that were taken twice or did not end, and agents of the runner's who are not told word by word."""
    ordered, taken = load.ledger.ordered, load.ledger.taken
    statuses = dict(load.database.sql("SELECT run_id, status FROM runs"))
    said = {
        session: "".join(
            block.get("text", "")
            for (content,) in load.database.sql(
                "SELECT content FROM events WHERE session_id = ? AND event_type = 'message' AND role = 'assistant'"
                " ORDER BY id",
                (session,),
            )
            for block in json.loads(content)
        )
        for session in load.ledger.driven
    }
    return {
        "runs taken twice": [run_id for run_id, times in Counter(taken).items() if times > 1],
        "runs that did not end": [
            f"{run_id} {statuses.get(run_id)}"
            for run_id in {*ordered, *taken}
            if statuses.get(run_id) != "completed"
        ],
        "agents who are told otherwise than they spoke": [
            f"{session}: {said[session]!r} and not {expected!r}"
            for session, expected in load.ledger.driven.items()
            if said[session] != expected
        ],
    }


def verdicts(load: Load) -> Found:
    """Requests whose asker never heard, or heard otherwise than people decided, or was allowed by nobody."""
    ledger, sql = load.ledger, load.database.sql
    stands = {
        request_id: (status, target, by)
        for request_id, status, target, by in sql(
            "SELECT request_id, status, target_resource, approved_by FROM permission_requests WHERE plugin_id = 'bench'"
        )
    }
    decided: dict[str, list[str]] = {}
    for target, *told in sql(
        "SELECT target_id, event_type, actor_id, timestamp, metadata FROM audit_logs"
        " WHERE event_type IN ('PERMISSION_REQUEST_APPROVED', 'PERMISSION_REQUEST_DENIED') ORDER BY id"
    ):
        decided.setdefault(target, []).append(" ".join(map(str, told)))
    wrong = []
    for request_id, (status, allowed) in ledger.told.items():
        stood, target, by = stands[request_id]
        meant = "approved" if target.startswith("yes") else "denied"
        if (status, stood, allowed) != (meant, meant, meant == "approved") or not by:
            wrong.append(f"{request_id} {target}: {stood} by {by}, told {status}, allowed {allowed}")
    return {
        "verdicts never heard": [request_id for request_id in ledger.asked if request_id not in ledger.told],
        "wrongly allowed or denied": wrong,
        "decided by nobody": [
            f"{request_id}: {stands[request_id][0]}"
            for request_id in ledger.left
            if stands[request_id][0] != "pending" or request_id in decided
        ],
        "decided twice": [f"{target}: {told}" for target, told in decided.items() if len(told) > 1],
    }


def calls(load: Load) -> Found:
    """Calls through the gateway that ran without an approval of their own, and approvals that came to nothing."""
    approved: Counter[str] = Counter()
    lost: Counter[str] = Counter()
    for given, status, state in load.database.sql(
        "SELECT c.tool_input, r.status, g.state FROM permission_requests r JOIN permission_context c"
        " ON c.request_id = r.request_id LEFT JOIN mcp_gateway_calls g ON g.request_id = r.request_id"
        " WHERE c.tool_input LIKE '%\"path\"%'"
    ):
        path = json.loads(given)["path"]
        approved[path] += status == "approved"
        lost[path] += state == "lost"
    ran = Counter({call.removeprefix("write "): times for call, times in load.example.calls.items()})
    told = load.ledger.called
    return {
        "calls that ran and should not": [
            f"{path}: {times} times, approved {approved[path]} times"
            for path, times in ran.items()
            if times > approved[path] or not path.startswith("yes")
        ],
        "approved calls that did not run": [
            f"{path}: {ran[path]} times of {times}, {told.get(path)}"
            for path, times in approved.items()
            if ran[path] + lost[path] < times
        ],
        "calls never told": [path for path, said in told.items() if not said],
        "calls told otherwise than they ended": [
            f"{path}: {said}"
            for path, said in told.items()
            if (said.startswith("wrote") and not ran[path]) or ("denied" in said) == path.startswith("yes")
        ],
    }


def answers(load: Load, troubles: Troubles) -> Found:
    """Answers that were neither good nor a clear 503 (or the balancer's own) while there was trouble."""
    ledger = load.ledger
    return {
        UNTROUBLED: [
            f"{what} {since(at, troubles)}" for at, what in ledger.refused if not troubles.excused(at)
        ],
        STRANGE: ledger.strange,
        "kinds of work that came to nothing": [
            name
            for name in ("acknowledged", "taken", "told", "left", "called", "driven", "files")
            if not getattr(ledger, name)
        ],
        FAILED: ledger.failed,
    }


def since(at: float, troubles: Troubles) -> str:
    """Say how long after the last trouble something was."""
    before = [ended for _, ended in troubles.windows if ended <= at]
    return f"{at - max(before):.1f} s after the last trouble" if before else "before all trouble"


def damaged_files(load: Load) -> Found:
    """Return the messages whose file does not come back, through the balancer, as it was sent."""
    client, found = load.client(), []
    ids = dict(load.database.sql("SELECT message_id, id FROM chat_attachments"))
    for message_id, digest in load.ledger.files.items():
        answer = client.get(f"/api/chat/attachments/{ids.get(message_id)}")
        if answer.status_code != 200 or hashlib.sha256(answer.content).hexdigest() != digest:
            found.append(f"{message_id} {answer.status_code}")
    return {"files lost or changed": found}


def broken(servers: list[Served]) -> Found:
    """Return what `manage.py audit verify` and, for each server, `manage.py doctor` find broken."""
    audit = manage(servers[0], "audit", "verify")
    print(audit.stdout.strip(), flush=True)
    doctors = []
    for nth, server in enumerate(servers):
        told = manage(server, "doctor", "--json")
        looked = (
            json.loads(told.stdout)
            if told.stdout.startswith("[")
            else [{"level": "fail", "told": told.stderr}]
        )
        doctors += [f"server {nth}: {one}" for one in looked if one["level"] == "fail"]
        print(f"doctor, server {nth}:", Counter(one["level"] for one in looked), flush=True)
    return {
        "audit log broken": [f"{audit.stdout} {audit.stderr}"] if audit.returncode else [],
        "doctors who find something broken": doctors,
    }


def manage(server: Served, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a management command of a server's version, as its user would."""
    return subprocess.run(
        [sys.executable, "manage.py", *words],
        cwd=server.root, env=server.env, check=False, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
