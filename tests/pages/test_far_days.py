"""The first and the last days of the calendar in a filter are no errors."""

from __future__ import annotations

import pytest

from tests.people import signed_in

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    "path",
    [
        "/ui/audit/?since=9999-12-31",
        "/ui/audit/?since=9999-12-30",
        "/ui/audit/?since=9999-12-31&zone=America/New_York",
        "/ui/audit/?since=9999-12-31&zone=Pacific/Apia",
        "/ui/approvals/history/?since=9999-12-31",
        "/ui/sessions/?since=9999-12-31",
        "/ui/runs/?since=9999-12-31",
        "/admin/coordinator/auditlog/?timestamp_first=9999-12-31",
        "/admin/coordinator/auditlog/?timestamp_first=0001-01-01",
        "/admin/coordinator/auditlog/?timestamp_last=9999-12-30",
    ],
)
def test_far_days_are_no_errors(path: str) -> None:
    assert signed_in("admin").get(path).status_code == 200
