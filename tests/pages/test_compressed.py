"""Pages are compressed for browsers; programs' answers and downloads are not."""

from __future__ import annotations

import gzip

import pytest

from tests.people import signed_in

pytestmark = pytest.mark.django_db
BROWSER = {"Accept-Encoding": "gzip, deflate, br"}


def test_a_page_is_compressed_for_who_takes_it() -> None:
    client = signed_in("viewer")
    plain, packed = client.get("/ui/help/"), client.get("/ui/help/", headers=BROWSER)
    assert packed.headers["Content-Encoding"] == "gzip"
    assert "Accept-Encoding" in packed.headers["Vary"]
    assert "Content-Encoding" not in plain.headers
    assert b"<html" in gzip.decompress(packed.content)
    assert len(packed.content) < len(plain.content) / 2


def test_no_two_answers_are_of_one_length() -> None:
    """A length must not say what was typed and what stands on the page beside it."""
    client = signed_in("viewer")
    lengths = {len(client.get("/ui/help/", headers=BROWSER).content) for _ in range(20)}
    assert len(lengths) > 5


@pytest.mark.parametrize("path", ["/ui/audit/export.csv", "/api/openapi.json", "/health"])
def test_what_programs_read_and_downloads_stay_as_they_are(path: str) -> None:
    answer = signed_in("viewer").get(path, headers=BROWSER)
    assert "Content-Encoding" not in answer.headers
