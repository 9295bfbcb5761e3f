"""Bytes on the wire: whatever is hidden in a request's body or framing is never taken for a request of its own.

The hidden request would count: it carries an approver's session and token. The control shows that it does.
"""

from __future__ import annotations

import contextlib
import socket
from dataclasses import dataclass

import httpx
import pytest

from tests.approvals.cards import values
from tests.served import KEYS, Served

pytestmark = pytest.mark.served


@dataclass
class Approval:
    """A request that waits, and the bytes that would approve it."""

    box: Served
    request_id: str
    seen: str
    hidden: bytes

    def status(self) -> str:
        rows = self.box.sql("SELECT status FROM permission_requests WHERE request_id = ?", (self.request_id,))
        return str(rows[0][0])

    def send(self, *pieces: bytes) -> bytes:
        """Send on one connection, then a last request that ends it; return all that comes back but that one's."""
        last = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
        answers = b""
        with socket.create_connection(("127.0.0.1", self.box.port)) as line, contextlib.suppress(OSError):
            line.settimeout(10)
            line.sendall(b"".join(pieces) + last)  # one that is refused may be cut off while we send
            while data := line.recv(65_536):
                answers += data
        head, found, _ = answers.rpartition(b"HTTP/1.1 200 OK")
        return head if found and answers.endswith(b'{"status":"healthy"}') else answers


@pytest.fixture(scope="module")
def approver(box: Served) -> dict[str, str]:
    """The headers of a signed-in approver's browser."""
    client = box.sign_in("approver")
    cookies = "; ".join(f"{cookie.name}={cookie.value}" for cookie in client.cookies.jar)
    names = ("X-CSRFToken", "X-Signalbox-Proof", "Origin")
    return {"Cookie": cookies} | {name: client.headers[name] for name in names}


@pytest.fixture
def approval(box: Served, approver: dict[str, str], request: pytest.FixtureRequest) -> Approval:
    body = {
        "plugin_id": "p",
        "permission_type": "FileWrite",
        "justification": "x",
        "target_resource": request.node.name,
    }
    asked = box.client("operator").post("/api/permission-requests", json=body)
    name = asked.json()["request_id"]
    page = httpx.get(
        f"{box.url}/ui/approvals/{name}/", headers={"Cookie": approver["Cookie"]}, verify=False
    ).text
    [seen] = values(page, "judged")
    return Approval(box, name, seen, decide(box, name, seen, approver))


def decide(box: Served, request_id: str, seen: str, headers: dict[str, str]) -> bytes:
    form = f"ids={request_id}&judged={seen}&verdict=approved".encode()
    told = {
        "Host": f"127.0.0.1:{box.port}",
        "Content-Type": "application/x-www-form-urlencoded",
        "Content-Length": str(len(form)),
        **headers,
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in told.items())
    return f"POST /ui/approvals/decide/ HTTP/1.1\r\n{lines}\r\n".encode() + form


def outer(headers: str, path: str = "/api/events", method: str = "POST") -> bytes:
    key = f"Authorization: Bearer {KEYS['all']}"
    return f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{key}\r\n{headers}\r\n\r\n".encode()


def test_the_hidden_request_counts_where_it_is_not_hidden(approval: Approval) -> None:
    approval.send(approval.hidden)
    assert approval.status() == "approved"


AMBIGUOUS = {
    "two lengths, short first": "Content-Length: 0\r\nContent-Length: {n}",
    "two lengths, short last": "Content-Length: {n}\r\nContent-Length: 0",
    "two lengths in one": "Content-Length: 0, {n}",
    "length and chunks": "Content-Length: {n}\r\nTransfer-Encoding: chunked",
    "chunks and length": "Transfer-Encoding: chunked\r\nContent-Length: 5",
    "chunks twice": "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
    "chunks and identity": "Transfer-Encoding: chunked, identity",
    "unknown coding": "Transfer-Encoding: xchunked",
    "blank before the colon": "Transfer-Encoding : chunked",
    "vertical tab": "Transfer-Encoding: \x0bchunked",
    "folded": "X: y\r\n Transfer-Encoding: chunked",
    "length with a sign": "Content-Length: +{n}",
    "length in hex": "Content-Length: 0x10",
    "length below nothing": "Content-Length: -1",
    "length with an underscore": "Content_Length: {n}\r\nContent-Length: 0_0",
    "bare line feeds": "Content-Length: 0\nTransfer-Encoding: chunked",
    "bare carriage return": "X: y\rContent-Length: {n}",
}


@pytest.mark.parametrize("framing", AMBIGUOUS.values(), ids=AMBIGUOUS.keys())
def test_a_request_whose_end_is_in_doubt_hides_no_other(approval: Approval, framing: str) -> None:
    headers = framing.format(n=len(b"0\r\n\r\n" + approval.hidden))
    answers = approval.send(outer(headers), b"0\r\n\r\n", approval.hidden)
    assert approval.status() == "pending"
    assert answers.count(b"HTTP/1.1 ") <= 1


@pytest.mark.parametrize(
    "chunk", [b"0;\n", b"-0\r\n\r\n", b"0x0\r\n\r\n", b"0\n\n", b" 0\r\n\r\n", b"0 ;\r\n\n"]
)
def test_a_chunk_that_is_not_one_hides_no_request(approval: Approval, chunk: bytes) -> None:
    approval.send(outer("Transfer-Encoding: chunked"), chunk, approval.hidden)
    assert approval.status() == "pending"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/health"),
        ("HEAD", "/ui/"),
        ("OPTIONS", "/sessions"),
        ("POST", "/ui/sign-out/"),
        ("POST", "/api/access/check"),
        ("POST", "/sessions/ses_none/events"),
        ("POST", "/hooks/claude-code"),
        ("POST", "/v1/logs"),
        ("GET", "/runner/runs"),
        ("GET", "/api/permission-requests/req_none/wait"),
        ("GET", "/api/chat/agent.none/messages/wait"),
        ("GET", "/ui/live/?topics=runs"),
    ],
)
def test_a_body_that_nobody_reads_is_not_the_next_request(approval: Approval, method: str, path: str) -> None:
    answers = approval.send(outer(f"Content-Length: {len(approval.hidden)}", path, method), approval.hidden)
    assert approval.status() == "pending"
    assert answers.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize("token", ["h2c", "websocket", "TLS/1.0"])
def test_an_upgrade_lets_nothing_through(approval: Approval, token: str) -> None:
    headers = f"Connection: Upgrade\r\nUpgrade: {token}\r\nContent-Length: {len(approval.hidden)}"
    approval.send(outer(headers, "/health", "GET"), approval.hidden)
    assert approval.status() == "pending"


def test_a_pipelined_request_does_not_inherit_the_one_before_it(
    approval: Approval, approver: dict[str, str]
) -> None:
    lines = "".join(f"{name}: {value}\r\n" for name, value in approver.items())
    page = f"GET /ui/ HTTP/1.1\r\nHost: 127.0.0.1:{approval.box.port}\r\n{lines}\r\n".encode()
    bare = decide(
        approval.box, approval.request_id, approval.seen, {"Authorization": f"Bearer {KEYS['all']}"}
    )
    answers = approval.send(page, bare, outer("Content-Length: 0", "/runs", "GET"))
    assert approval.status() == "pending"
    assert [int(part[:3]) for part in answers.split(b"HTTP/1.1 ")[1:]][:2] == [200, 403]


@pytest.mark.parametrize(
    "header",
    [
        "X-HTTP-Method-Override: POST",
        "X-HTTP-Method: POST",
        "X-Method-Override: POST",
        "X-Original-URL: /ui/approvals/decide/",
        "X-Rewrite-URL: /ui/approvals/decide/",
        "Host: evil.example",
    ],
)
def test_no_header_makes_another_request_of_it(
    approval: Approval, approver: dict[str, str], header: str
) -> None:
    lines = "".join(f"{name}: {value}\r\n" for name, value in approver.items())
    query = f"ids={approval.request_id}&judged={approval.seen}&verdict=approved&_method=POST"
    host = "" if header.startswith("Host") else f"Host: 127.0.0.1:{approval.box.port}\r\n"
    for path in (f"/ui/approvals/decide/?{query}", f"/ui/?{query}"):
        approval.send(f"GET {path} HTTP/1.1\r\n{host}{lines}{header}\r\n\r\n".encode())
    assert approval.status() == "pending"


ODD_PATHS = """
    //ui/approvals/ /UI/approvals/ /ui//approvals/ /ui/./approvals/ /health/../ui/approvals/ /health;/ui/approvals/
    /ui/approvals;x/ /ui%2fapprovals%2f /%75i/approvals/ /health%2f..%2fui%2fapprovals%2f /static/../ui/approvals/
    /health/..;/ui/approvals/ /ui/%2e%2e/ui/approvals/ http://127.0.0.1/ui/approvals/ //sessions /SESSIONS /./sessions
    /sessions/ /%73essions /health/..%2fsessions /api/../sessions /sessions; /sessions%3b /sessions%00 /sse/sessions/
    /sse//sessions /sse/sessions;x /SSE/sessions /sse/%73essions /runner/runs/ /runner//runs /Runner/runs
    /ui/live /ui/live; /UI/live/ /ui//live/ /%75i/live/?topics=runs /admin;/ //admin/ /admin%2f /static/../secret_key
    /static/%2e%2e/secret_key /static/..%2f..%2fsignalbox.sqlite3 /static//etc/passwd /..%2f..%2fetc/passwd
""".split()  # noqa: SIM905


@pytest.mark.parametrize("path", ODD_PATHS)
def test_no_odd_path_leads_around_a_guard(box: Served, path: str) -> None:
    with socket.create_connection(("127.0.0.1", box.port)) as line:
        line.sendall(
            f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{box.port}\r\nConnection: close\r\n\r\n".encode()
        )
        line.settimeout(10)
        answer = b""
        while data := line.recv(65_536):
            answer += data
    head, _, body = answer.partition(b"\r\n\r\n")
    status = int(head.split()[1])
    assert status in {301, 302, 400, 401, 404}, answer[:300]
    if status in {301, 302}:
        place = head.lower().partition(b"location: ")[2].split()[0].decode()
        assert place.startswith("/"), place
        assert not place.startswith("//"), place
    assert b"sqlite" not in body.lower()
