"""What of telemetry is not understood is counted by emitter, within bounds, and shown on Connections."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from coordinator.actions.sessions.omissions import (
    MAX_OF_EXPORT,
    MAX_OF_SENDER,
    record_sender_telemetry_omissions,
)
from coordinator.models import TelemetryOmission
from coordinator.sessions.omissions import OmissionKind, TelemetryEmitter
from dashboard.connections.omissions import SHOWN_FOR, load_recent_telemetry_omissions
from tests.claude_code.test_telemetry import post
from tests.served import Served
from tests.transcripts.test_telemetry import span, traces
from tests.usage.test_page import text_of

NOW = datetime(2026, 11, 25, 12, tzinfo=UTC)
BOT = TelemetryEmitter("helpdesk-bot", "some.library")


def record(
    *names: str, sender: str = "laptop", at: datetime = NOW, kind: OmissionKind = OmissionKind.SPAN
) -> None:
    record_sender_telemetry_omissions(sender, Counter((BOT, kind, name) for name in names), now=at)


def test_an_export_that_is_understood_in_part_is_shown_with_its_emitter_and_what_to_do(
    served: Served,
) -> None:
    served.emptied("telemetry_omissions")
    odd = span(1, NOW, gen_ai__operation__name="a_new_operation") | {"name": "remember"}
    odd["attributes"].append({"key": "my.count", "value": {"intValue": "many"}})
    for _ in range(2):
        assert post(served, "/v1/traces", traces(odd)).json()["partialSuccess"]["rejectedSpans"] == "1"
    assert post(served, "/v1/logs", b"[]").status_code == 400
    assert post(served, "/v1/logs", b"x", **{"Content-Type": "application/grpc"}).status_code == 415
    page = served.sign_in("viewer").get("/ui/connections/").text
    section = text_of(page.partition('id="omissions"')[2].partition("</section>")[0])
    assert "Span not understood remember 2" in section
    assert "Attribute not readable my.count 2" in section
    assert "Export refused The body must be a JSON object. 1" in section
    assert "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf" in section
    assert "Where your program sets the attribute, correct it" in section


def test_telemetry_that_is_understood_and_a_wrong_key_leave_nothing(served: Served) -> None:
    before = served.sql("SELECT count(*) FROM telemetry_omissions")
    assert post(served, "/v1/traces", traces(span(1, NOW, http__method="GET"))).json() == {}
    assert post(served, "/v1/traces", b"[]", Authorization="Bearer sbx_wrong").status_code == 401
    assert served.sql("SELECT count(*) FROM telemetry_omissions") == before


@pytest.mark.django_db
def test_the_same_again_is_counted_with_its_last_time() -> None:
    record("remember", "remember", "forget")
    record("remember", at=NOW + timedelta(hours=1))
    rows = TelemetryOmission.objects.order_by("name").values_list(
        "name", "service", "library", "omission_count"
    )
    assert list(rows) == [
        ("forget", "helpdesk-bot", "some.library", 1),
        ("remember", "helpdesk-bot", "some.library", 3),
    ]
    newest = load_recent_telemetry_omissions(NOW).rows[0]
    assert (newest.row.name, newest.last_at) == ("remember", NOW + timedelta(hours=1))
    assert newest.row.first_at_us < newest.row.last_at_us


@pytest.mark.django_db
def test_a_key_that_makes_up_names_pushes_out_its_own_rows_alone() -> None:
    record("of another key", sender="desk")
    for export in range(MAX_OF_SENDER // MAX_OF_EXPORT + 2):
        names = [f"{export} {number}" for number in range(MAX_OF_EXPORT + 10)]
        record(*names, at=NOW + timedelta(minutes=export))
    assert TelemetryOmission.objects.filter(sender="laptop").count() == MAX_OF_SENDER
    assert not TelemetryOmission.objects.filter(name="0 0").exists()
    assert TelemetryOmission.objects.filter(sender="desk").count() == 1


@pytest.mark.django_db
def test_what_was_left_out_long_ago_and_secrets_are_not_shown() -> None:
    record("old", at=NOW - SHOWN_FOR - timedelta(minutes=1))
    record("token ghp_16C7e42F292c6912E7710c838347Ae178B4a")
    names = [row.row.name for row in load_recent_telemetry_omissions(NOW).rows]
    assert len(names) == 1
    assert "ghp_16C7" not in names[0]
