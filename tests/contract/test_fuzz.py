"""Whatever the description allows, and what it does not: no request makes the program answer 500.

Bounded: the same examples every time, some for each operation, in process; then a round of nonsense over HTTP.
"""

from __future__ import annotations

import functools
import json
import random
import re
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coordinator.actions import runs
from coordinator.actions.agents import runners
from coordinator.actions.people import keys
from coordinator.api import api
from coordinator.api.edge_operations import OPERATIONS as EDGE_OPERATIONS
from coordinator.identity.actors import system_actor
from coordinator.identity.scopes import SCOPES
from coordinator.runs.statuses import START
from tests.guards.table import API
from tests.served import Served
from tests.unbound import accept_unbound_keys

EXAMPLES = 20
ODD_TEXTS = [
    "",
    "x",
    "a/b",
    "..",
    "%2e%2e",
    "\x00",
    "\U0001f600",
    "é" * 300,
    "0",
    "null",
    "-1",
    "' OR 1=1 --",
    "{}",
]

texts = st.one_of(st.sampled_from(ODD_TEXTS), st.text(max_size=20))
anything = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), texts
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=6,
)

SIMPLE: dict[str, st.SearchStrategy[Any]] = {
    "integer": st.integers(-(2**65), 2**65),
    "number": st.one_of(st.integers(-(2**65), 2**65), st.floats(allow_nan=False)),
    "boolean": st.booleans(),
    "string": texts,
}


class Described:
    """The description as strategies: values that fit a schema, and now and then some that do not."""

    def __init__(self, document: dict[str, Any], known: dict[str, list[str]]) -> None:
        self.document = document
        self.known = known

    def operations(self) -> list[tuple[str, str, dict[str, Any]]]:
        """Return path, method and operation of each door."""
        return [
            (path, method, operation)
            for path, methods in self.document["paths"].items()
            for method, operation in methods.items()
        ]

    def value(self, schema: dict[str, Any], name: str = "") -> st.SearchStrategy[Any]:
        """Return values for a schema; one in about five is something else."""
        return st.one_of(*[self.fitting(schema, name)] * 4, anything)

    def fitting(self, schema: dict[str, Any], name: str) -> st.SearchStrategy[Any]:
        """Return values that fit a schema."""
        if "$ref" in schema:
            return self.fitting(
                self.document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]], name
            )
        if name in self.known:
            return st.one_of(st.sampled_from(self.known[name]), texts)
        if "enum" in schema or "const" in schema:
            return st.sampled_from(schema.get("enum") or [schema["const"]])
        if options := schema.get("anyOf") or schema.get("oneOf"):
            return st.one_of([self.fitting(option, name) for option in options])
        return self.of_type(schema)

    def of_type(self, schema: dict[str, Any]) -> st.SearchStrategy[Any]:
        """Return values of a schema's type."""
        if schema.get("type") == "object":
            return self.objects(schema)
        if schema.get("type") == "array":
            return st.lists(self.value(schema.get("items", {})), max_size=3)
        return SIMPLE.get(schema.get("type", ""), anything)

    def objects(self, schema: dict[str, Any]) -> st.SearchStrategy[Any]:
        """Return objects with the described fields, some of them left out."""
        described = {name: self.value(one, name) for name, one in schema.get("properties", {}).items()}
        if not described:
            return st.dictionaries(texts, anything, max_size=3)
        needed = set(schema.get("required", []))
        return st.fixed_dictionaries(
            {name: one for name, one in described.items() if name in needed},
            optional={name: one for name, one in described.items() if name not in needed},
        )

    def requests(
        self, path: str, operation: dict[str, Any]
    ) -> st.SearchStrategy[tuple[str, dict[str, Any], Any]]:
        """Return requests for one operation: path, query and body."""
        parameters = operation.get("parameters", [])
        in_path = {p["name"]: self.value(p["schema"], p["name"]) for p in parameters if p["in"] == "path"}
        in_query = {p["name"]: self.value(p["schema"], p["name"]) for p in parameters if p["in"] == "query"}
        body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
        return st.tuples(
            st.fixed_dictionaries(in_path).map(lambda parts: filled(path, parts)),
            st.fixed_dictionaries({}, optional=in_query),
            self.value(body) if body else st.none(),
        )


def filled(path: str, parts: dict[str, Any]) -> str:
    """Put values into a path's places."""
    for name, value in parts.items():
        path = path.replace(f"{{{name}}}", str(value).replace("?", "%3F").replace("#", "%23") or "x")
    return path


@pytest.fixture
def client(db: None) -> Client:
    accept_unbound_keys()
    _, raw = keys.issue_api_key(name="fuzz", scopes=SCOPES, actor=system_actor("tests"), now=timezone.now())
    return Client(headers={"Authorization": f"Bearer {raw}"}, raise_request_exception=True)


@pytest.fixture
def known(db: None) -> dict[str, list[str]]:
    """Ids that exist, so that requests get beyond 404."""
    now = timezone.now()
    runner = runners.register_runner_and_recover_runs(runners.RunnerRegistration("vm", "/p", "test"), now)
    run = runs.queue_start_or_resume_run(kind=START, prompt="x", actor=system_actor("tests"), now=now)
    return {
        "session_id": [run.session_id],
        "run_id": [run.run_id],
        "runner_id": [runner.runner_id],
        "name": ["a"],
    }


@functools.cache  # it takes as long as a test
def description() -> dict[str, Any]:
    return api.get_openapi_schema()


def in_django(operations: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return those of the operations (path, method) that Django answers."""
    at_edge = {
        (operation.path, operation.method.lower()) for operation in EDGE_OPERATIONS if operation.summary
    }
    return [operation for operation in operations if operation not in at_edge]


# Path and method, from the table: it is quicker to read than the description.
OPERATIONS = [
    (re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", path), method.lower())
    for method, _, path in (row.partition(" ") for row in API)
    if path not in {"/api/docs", "/api/openapi.json"}
]


def test_every_described_operation_is_asked() -> None:
    described = [(path, method) for path, methods in description()["paths"].items() for method in methods]
    assert sorted(in_django(described)) == sorted(in_django(OPERATIONS))


@pytest.mark.parametrize(("path", "method"), in_django(OPERATIONS))
def test_no_request_breaks_an_operation(
    client: Client, known: dict[str, list[str]], path: str, method: str
) -> None:
    document = description()
    requests = Described(document, known).requests(path, document["paths"][path][method])

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(requests)
    def ask(request: tuple[str, dict[str, Any], Any]) -> None:
        url, query, body = request
        try:
            content = b"" if body is None else json.dumps(body).encode()
        except (ValueError, UnicodeEncodeError):
            return
        answer = client.generic(
            method.upper(), url, content, content_type="application/json", query_params=plain(query)
        )
        assert answer.status_code < 500 or answer.status_code == 503, answer.content
        if answer.status_code >= 400 and answer.status_code != 404:
            assert "detail" in answer.json()

    ask()


def plain(query: dict[str, Any]) -> dict[str, str]:
    """Return a query's values as text that a URL can hold."""
    return {name: str(value).encode("utf-8", "replace").decode() for name, value in query.items()}


def nonsense(rng: random.Random) -> Iterator[tuple[str, str, bytes]]:
    """Yield requests at random: known paths, odd ids, bodies that are no JSON or JSON of another shape."""
    document = description()
    paths = [(path, method) for path, methods in document["paths"].items() for method in methods]
    bodies = [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"x"',
        b"\xff\xfe",
        b'{"a":' * 200,
        b"[" * 5000,
        b'{"session_id":1}',
    ]
    bodies += [
        json.dumps({"event_type": odd, "session_id": odd, "timestamp": odd}).encode() for odd in ODD_TEXTS
    ]
    bodies += [
        b'{"event_type":"\\ud800","session_id":"x","timestamp":"t"}',
        b'{"prompt":"\\u0000","type":"start_session"}',
    ]
    for _ in range(300):
        path, method = rng.choice(paths)
        if path in {"/sse/sessions", "/api/permission-requests/{request_id}/wait"} and method == "get":
            continue
        for name in ("session_id", "run_id", "runner_id", "name", "request_id", "agent_id"):
            path = path.replace(
                f"{{{name}}}", rng.choice(["x", "%00", "%ff", "%2e%2e", "a%2fb", "é", "0" * 3000])
            )
        yield method, path, rng.choice(bodies)


@pytest.mark.served
def test_no_nonsense_over_http_breaks_the_program(served: Served) -> None:
    client = served.client()
    for method, path, body in nonsense(random.Random(4)):
        answer = client.request(method, path, content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code < 500 or answer.status_code == 503, (
            f"{method} {path} {body[:80]!r}: {answer.text}"
        )
    assert "Traceback" not in served.output()
    assert client.get("/health").status_code == 200
