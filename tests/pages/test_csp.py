from __future__ import annotations

import pytest
from django.conf import settings
from django.http import Http404
from django.test import Client
from django.urls import path

from coordinator import urls
from tests.pages.markup import inline_parts
from tests.pages.places import plain_paths
from tests.people import person, signed_in

pytestmark = pytest.mark.django_db


def broken(request: object) -> None:
    raise RuntimeError("as a test")


def missing(request: object) -> None:
    raise Http404("No such thing.")


urlpatterns = [*urls.urlpatterns, path("ui/broken/", broken), path("ui/missing/", missing)]
handler400, handler403, handler404, handler500 = (
    urls.handler400,
    urls.handler403,
    urls.handler404,
    urls.handler500,
)


def test_the_policy_allows_nothing_inline_and_nothing_from_elsewhere() -> None:
    words = {word for values in settings.SECURE_CSP.values() for word in values}
    assert not words & {"'unsafe-inline'", "'unsafe-eval'", "*", "https:", "http:"}
    assert settings.SECURE_CSP["default-src"] == ["'self'"]


@pytest.mark.urls(__name__)
@pytest.mark.parametrize(
    ("place", "status"),
    [
        ("/", 302),
        ("/ui/", 200),
        ("/ui/nowhere/", 404),
        ("/ui/missing/", 404),
        ("/ui/broken/", 500),
        ("/ui/sign-out/", 302),
        ("/admin/", 200),
        ("/admin/auth/user/", 200),
        ("/admin/nowhere/", 404),
        ("/api/docs", 200),
        ("/api/openapi.json", 200),
        ("/health", 200),
        ("/nowhere", 404),
    ],
)
def test_every_kind_of_answer_carries_the_policy(place: str, status: int) -> None:
    client = signed_in("admin")
    client.raise_request_exception = False
    answer = client.get(place)
    assert answer.status_code == status
    assert "default-src 'self'" in answer.headers["Content-Security-Policy"]


def test_refusals_carry_the_policy() -> None:
    role = signed_in("viewer").get("/ui/style/")
    form = Client(enforce_csrf_checks=True).post("/ui/sign-in/")
    host = Client(headers={"Host": "evil.example"}).get("/ui/")
    assert [answer.status_code for answer in (role, form, host)] == [403, 403, 400]
    assert all("Content-Security-Policy" in answer.headers for answer in (role, form, host))


@pytest.mark.parametrize(
    "place", [*plain_paths(), "/ui/nowhere/", "/admin/", "/admin/auth/user/", "/api/docs"]
)
def test_no_page_has_inline_styles_scripts_or_handlers(place: str) -> None:
    answer = signed_in("admin").get(place)
    if answer.headers.get("Content-Type", "").startswith("text/html"):
        assert inline_parts(answer.content.decode()) == []


def test_pages_for_strangers_have_nothing_inline_either() -> None:
    for answer in (Client().get("/ui/sign-in/"), Client().get("/ui/setup/"), Client().get("/ui/nowhere/")):
        assert inline_parts(answer.content.decode()) == []


def test_a_change_list_without_actions_has_no_style_element() -> None:
    client = signed_in("admin")
    person("viewer")
    assert inline_parts(client.get("/admin/auth/group/?_popup=1").content.decode()) == []


def test_the_reader_of_inline_parts_finds_them() -> None:
    page = '<a style="x" onclick="y" href="javascript:z"></a><style></style><script>1</script>'
    assert len(inline_parts(page)) == 5
