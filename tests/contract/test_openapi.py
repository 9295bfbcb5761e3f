"""The API's description is complete, true and can be browsed."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.conf import settings
from django.test import Client

from coordinator.api import api
from coordinator.edge.app import ROUTES
from coordinator.identity.scopes import SCOPES
from tests.people import signed_in
from tests.wire.recording import exchanges

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module")  # it takes as long as a test
def document() -> dict[str, Any]:
    return Client().get("/api/openapi.json").json()


def operations(document: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (path, method, one) for path, methods in document["paths"].items() for method, one in methods.items()
    ]


def test_the_document_is_openapi_3_1(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.1")


def test_the_document_that_anybody_may_ask_for_is_made_once() -> None:
    """Making it takes a second."""
    assert api.get_openapi_schema() is api.get_openapi_schema(path_params={})


def test_every_reference_leads_somewhere_and_every_schema_is_used(document: dict[str, Any]) -> None:
    names = set(re.findall(r'"#/components/schemas/([^"]+)"', str(document).replace("'", '"')))
    assert names
    assert names == document["components"]["schemas"].keys()  # and each schema is used


# What asks for no key, and what it answers to a stranger who sends nothing that it knows: a code that connects a
# machine is refused, and an unknown agent has no plugin.
WITHOUT_KEY = {
    "/health": {200},
    "/api/connect/exchange": {422},
    "/hooks/{agent}/plugin.js": {404},
    "/client/signalbox.pyz": {200},
}


def test_every_recorded_request_is_described(document: dict[str, Any]) -> None:
    known = [(re.sub(r"\{[^}]+\}", "[^/]+", path), method) for path, method, _ in operations(document)]
    for exchange in exchanges():
        assert any(
            method == exchange.method.lower() and re.fullmatch(path, exchange.path) for path, method in known
        ), f"{exchange.method} {exchange.path}"


def test_every_door_of_the_edge_for_machines_is_described(document: dict[str, Any]) -> None:
    known = [(method, re.sub(r"\{[^}]+\}", "[^/]+", path)) for path, method, _ in operations(document)]
    for method, path in ROUTES:
        if path.startswith("/ui/"):
            continue
        plain = re.sub(r"\(.*?\)", "x", path)
        assert any(method.lower() == its and re.fullmatch(form, plain) for its, form in known), (
            f"{method} {path}"
        )


def test_every_operation_has_a_name_a_line_and_the_answers_it_gives(document: dict[str, Any]) -> None:
    ids = [one["operationId"] for _, _, one in operations(document)]
    assert len(ids) == len(set(ids))
    for path, method, one in operations(document):
        assert one.get("summary"), f"{method} {path}"
        if not path.startswith("/health") and path not in WITHOUT_KEY:
            assert {"401", "403", "422", "429", "503"} <= set(one["responses"]) or path.startswith("/api/"), (
                path
            )


def test_every_operation_but_health_says_which_scopes_it_takes(document: dict[str, Any]) -> None:
    for path, method, one in operations(document):
        schemes = {name for entry in one.get("security", []) for name in entry}
        if "KeyAuth" in schemes:
            assert one["x-scopes"], f"{method} {path}"
            assert set(one["x-scopes"]) <= set(SCOPES)
        else:
            open_to_all = path.startswith("/health") or path in WITHOUT_KEY
            assert open_to_all or schemes == {"PersonAuth"}, f"{method} {path}"


def test_without_a_key_nothing_but_health_and_the_description_answers(document: dict[str, Any]) -> None:
    for router in api._get_bound_routers():
        for path, view in router.path_operations.items():
            for operation in view.operations:
                url = re.sub(r"\{[^}]+\}", "x", f"{router.prefix}{path}")
                for method in operation.methods:
                    answer = Client().generic(method, url, b"{}", content_type="application/json")
                    expected = WITHOUT_KEY.get(f"{router.prefix}{path}", {401, 403})
                    assert answer.status_code in expected, f"{method} {url}"
                    assert answer.status_code == 200 or "detail" in answer.json()


def test_the_page_needs_nothing_from_elsewhere_and_nothing_inline() -> None:
    answer = Client().get("/api/docs")
    page = answer.content.decode()
    assert answer.status_code == 200
    assert not re.findall(r'(?:src|href)="(?:https?:)?//', page)
    assert not re.findall(r"<script(?![^>]*(?:src=|application/json))", page)
    assert "unsafe" not in answer.headers["Content-Security-Policy"]


def test_a_method_that_a_path_does_not_have_is_refused_as_json() -> None:
    answer = Client().post("/sessions", {}, content_type="application/json")
    assert (answer.status_code, answer.json()) == (405, {"detail": "Method Not Allowed"})
    assert "GET" in answer.headers["Allow"]


@pytest.mark.parametrize("address", ["/sessions/%00", "/ui/sessions/?q=%00", "/runs?status=%00"])
def test_a_nul_character_in_an_address_is_refused(address: str) -> None:
    assert Client().get(address).status_code == 400


@pytest.mark.django_db
def test_a_nul_character_in_the_session_cookie_is_refused() -> None:
    client = Client()
    client.cookies[settings.SESSION_COOKIE_NAME] = "aaaaaaaa\0b"
    assert client.get("/ui/").status_code == 400


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("door", "field"), [("seen", "ids"), ("x/revoke", "reason"), ("x/revoke", "re\0son")]
)
def test_a_nul_character_in_a_form_of_a_page_is_refused(door: str, field: str) -> None:
    assert signed_in("approver").post(f"/ui/approvals/{door}/", {field: "a\0b"}).status_code == 400


def test_refusals_share_one_model(document: dict[str, Any]) -> None:
    """A model for each status of each operation took a tenth of a server's start."""
    every = [
        model
        for router in api._get_bound_routers()
        for view in router.path_operations.values()
        for operation in view.operations
        for status, model in operation.response_models.items()
        if isinstance(status, int) and status >= 400
    ]
    assert len(every) > 200
    assert len(set(every)) == 1
