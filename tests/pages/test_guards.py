from __future__ import annotations

import pytest
from django.test import Client
from django.urls import reverse

from tests.pages.places import plain_paths, views
from tests.people import signed_in

pytestmark = pytest.mark.django_db

# Open on purpose: they lead in, lead out, keep a colour, or are files of the app on a phone.
OPEN = {
    *("/ui/sign-in/", "/ui/sign-out/", "/ui/setup/", "/ui/account/theme/"),
    *("/ui/sign-in/provider/", "/ui/sign-in/provider/back/", "/ui/people/join/", "/ui/people/join/passkey/"),
    *("/ui/service-worker.js", "/ui/manifest.webmanifest", "/ui/push/offline/"),
    "/ui/mcp/sign-in/client/",
}


def test_every_page_names_who_may_open_it() -> None:
    unguarded = [
        route for route, view in views() if route not in OPEN and not getattr(view, "needed_role", None)
    ]
    assert unguarded == []


def test_a_stranger_is_led_to_the_sign_in_page() -> None:
    for place in (place for place in plain_paths() if place not in OPEN):
        last_address = (
            Client().get(place, follow=True).redirect_chain[-1][0]
        )  # by way of the page with the form
        of_sign_in = place.startswith(("/ui/sign-in/", "/ui/people/join/")) and last_address == "/ui/sign-in/"
        assert of_sign_in or last_address.startswith("/ui/sign-in/?next=%2Fui%2F"), place


def test_the_sign_in_page_leads_back_with_the_whole_address() -> None:
    answer = Client().get("/ui/account/?a=1&b=2")
    assert answer.headers["Location"] == "/ui/sign-in/?next=%2Fui%2Faccount%2F%3Fa%3D1%26b%3D2"


def test_htmx_is_led_away_as_a_whole_page() -> None:
    page = "http://testserver/ui/account/?tab=2"
    answer = Client().get("/ui/", headers={"HX-Request": "true", "HX-Current-URL": page})
    assert answer.status_code == 200
    assert answer.headers["HX-Redirect"] == "/ui/sign-in/?next=%2Fui%2Faccount%2F%3Ftab%3D2"


def test_somebody_without_a_role_reads_what_to_do() -> None:
    answer = signed_in(None).get("/ui/")
    assert answer.status_code == 403
    assert "You have no role yet" in answer.content.decode()


def test_somebody_without_a_role_may_open_their_account() -> None:
    assert signed_in(None).get("/ui/account/").status_code == 200


def test_the_page_of_a_refusal_names_the_role_that_is_needed() -> None:
    answer = signed_in("approver").get("/ui/style/")
    assert answer.status_code == 403
    assert "This needs the role admin" in answer.content.decode()


@pytest.mark.parametrize(("role", "status"), [("viewer", 403), ("approver", 403), ("admin", 200)])
def test_the_admin_is_for_admins(role: str, status: int) -> None:
    assert signed_in(role).get("/admin/", follow=True).status_code == status


def test_the_admin_sends_strangers_to_the_one_sign_in_page() -> None:
    answer = Client().get("/admin/auth/user/", follow=True)
    assert answer.redirect_chain[-1][0] == "/ui/sign-in/?next=%2Fadmin%2Fauth%2Fuser%2F"


def test_the_admins_own_doors_lead_to_ours() -> None:
    client = signed_in("admin")
    assert client.get("/admin/password_change/").headers["Location"] == reverse("accounts:password")
    assert client.get("/admin/login/?next=//evil.example").headers["Location"] == "/admin/"
