"""Counts of omitted telemetry, for the person who has to correct its settings."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from django.db import connection, transaction

from coordinator.engine import bulk
from coordinator.lib import instants
from coordinator.models import TelemetryOmission
from coordinator.secrets.masking import mask_secrets_in_value
from coordinator.sessions.omissions import OmissionKind, TelemetryEmitter

MAX_OF_EXPORT = 50  # names of one export that are counted
MAX_OF_SENDER = 200  # rows of one key: one that makes up names pushes out its own alone
MAX_ROWS = 2_000
MAX_CHARACTERS = 200
_COLUMNS = {
    **dict.fromkeys(("sender", "service", "library", "kind", "name"), "text"),
    **dict.fromkeys(("omission_count", "first_at_us", "last_at_us"), "bigint"),
}


def record_sender_telemetry_omissions(
    sender: str, omissions: Mapping[tuple[TelemetryEmitter, OmissionKind, str], int], *, now: datetime
) -> None:
    """Count what one export of the key named `sender` held and was left out. The oldest go where there are too many."""
    counts: dict[tuple[str, ...], int] = {}
    for (emitter, kind, name), count in list(omissions.items())[:MAX_OF_EXPORT]:
        foreign_texts = mask_secrets_in_value([emitter.service, emitter.library, name])
        service, library, label = (text[:MAX_CHARACTERS] for text in foreign_texts)
        key = (sender[:MAX_CHARACTERS], service, library, str(kind), label)
        counts[key] = counts.get(key, 0) + count
    at_us = instants.instant_to_microseconds(now)
    rows = [[*key, count, at_us, at_us] for key, count in sorted(counts.items())]
    values_sql, parameters = bulk.rows_select_sql_and_parameters(rows, *_COLUMNS.values())
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(
                f"INSERT INTO telemetry_omissions ({', '.join(_COLUMNS)}) {values_sql}"
                " ON CONFLICT (sender, service, library, kind, name) DO UPDATE SET"
                " omission_count = telemetry_omissions.omission_count + excluded.omission_count,"
                " last_at_us = excluded.last_at_us",
                parameters,
            )
        for all_rows, most in (
            (TelemetryOmission.objects.filter(sender=sender[:MAX_CHARACTERS]), MAX_OF_SENDER),
            (TelemetryOmission.objects.all(), MAX_ROWS),
        ):
            surplus = all_rows.order_by("-last_at_us", "-id").values_list("pk", flat=True)[most:]
            TelemetryOmission.objects.filter(pk__in=list(surplus)).delete()
