"""The recorded cases of who is let in (tests/data/conformance/auth.json), each at a door of ours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from coordinator.actions.people import keys
from tests.keys.test_authenticate import BY, NOW, make

pytestmark = pytest.mark.django_db

CASES = json.loads((Path(__file__).parents[1] / "data" / "conformance" / "auth.json").read_text())["api_auth"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_a_call_with_such_a_key(case: dict[str, Any]) -> None:
    """Where a case has the configured key in its header, ours has the key that was made; 401 is our refusal."""
    if case["configured"]:
        row, raw = make()
        if case.get("revoked"):
            keys.invalidate_api_key(row.pk, actor=BY, now=NOW)
        said = {case["configured"]: raw, case["configured"].upper(): raw.upper()}
        header = said.get(case["header"], case["header"])
    else:
        header = case["header"]
    answer = Client(headers={} if header is None else {"X-API-Key": header}).get("/runs")
    assert answer.status_code == (200 if case["allowed"] else 401)
