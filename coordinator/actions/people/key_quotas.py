"""Daily quotas (UTC) of the bytes of events a key may store, so that one agent's flood does not fill the disk.

Counted in `key_storage_days`, in the transaction that writes the events, so every process adds to the same sum. Each
process remembers what it last read or wrote: a key that another process brings over its limit is refused here with its
next write at the latest. Decisions about calls are written all the same (`GroupWriter.perform_in_transaction`): a key
over its limit still asks, is answered and is denied, though its timeline lacks the rest of the day.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, time, timedelta

from django.conf import settings
from django.db import connection, transaction
from django.db.models import OuterRef, Subquery

from coordinator.errors import QuotaReached
from coordinator.models import KeyStorageDay

STORAGE_RETENTION_DAYS = 31
MIB = 1024 * 1024
_KEY = "key:"  # how the callers begin that are keys (lib.fair_queue.CALLER)
_ADD = (
    "INSERT INTO key_storage_days (key_id, day, bytes) VALUES (%s, %s, %s)"
    " ON CONFLICT (key_id, day) DO UPDATE SET bytes = key_storage_days.bytes + excluded.bytes RETURNING bytes"
)


class KeyQuotas:
    """What one process knows of today's sums. The writing thread counts; anybody may ask for the error."""

    def __init__(self) -> None:
        self._day = ""
        self._sums: dict[str, int] = {}

    def find_storage_quota_error(self, caller: str, now: datetime) -> QuotaReached | None:
        """Return why the caller may store nothing more today; None where it may, as far as is known here."""
        limit = settings.KEY_BYTES_PER_DAY
        if not limit or self.stored_bytes_cache_for_day(now).get(caller, 0) < limit:
            return None
        end = end_of_utc_day(now)
        return QuotaReached(
            f"This key has stored {limit // MIB} MiB today, which is its limit (SIGNALBOX_KEY_MIB_PER_DAY). "
            f"Nothing was written. It may write again from {end:%Y-%m-%d %H:%M} UTC.",
            retry_after=int((end - now).total_seconds()) + 1,
        )

    def cache_stored_byte_sums(self, callers: Iterable[str], now: datetime) -> None:
        """Read the sums of callers that are not known here yet."""
        if not settings.KEY_BYTES_PER_DAY:
            return
        sums = self.stored_bytes_cache_for_day(now)
        unknown = {
            int(caller[len(_KEY) :]): caller
            for caller in callers
            if is_api_key_caller(caller) and caller not in sums
        }
        if unknown:
            rows = KeyStorageDay.objects.filter(key_id__in=unknown, day=utc_day_text(now))
            stored = dict(rows.values_list("key_id", "bytes"))
            sums.update({caller: stored.get(key_id, 0) for key_id, caller in unknown.items()})

    def add_stored_bytes(self, sizes: Mapping[str, int], now: datetime) -> None:
        """Add to the keys' sums in the database, last of all in the transaction, and here once that is committed."""
        if not settings.KEY_BYTES_PER_DAY:
            return
        sums = {}
        # In one order, or two processes would wait for one another.
        for key_id, caller in sorted(
            (int(caller[len(_KEY) :]), caller) for caller in sizes if is_api_key_caller(caller)
        ):
            with connection.cursor() as cursor:
                cursor.execute(_ADD, [key_id, utc_day_text(now), sizes[caller]])
                sums[caller] = int(cursor.fetchone()[0])
        transaction.on_commit(lambda: self.stored_bytes_cache_for_day(now).update(sums))

    def stored_bytes_cache_for_day(self, now: datetime) -> dict[str, int]:
        if self._day != (day := utc_day_text(now)):
            self._day, self._sums = day, {}
        return self._sums


def is_quota_reached(caller: str, now: datetime) -> bool:
    """Return whether nothing more that the caller does is written today, as the database has it."""
    limit = settings.KEY_BYTES_PER_DAY
    if not limit or not is_api_key_caller(caller):
        return False
    day = KeyStorageDay.objects.filter(key_id=caller[len(_KEY) :], day=utc_day_text(now))
    return day.filter(bytes__gte=limit).exists()


def bytes_stored_today_by_key(now: datetime) -> dict[int, int]:
    """Return how many bytes each key has stored today, by the key's id."""
    return dict(KeyStorageDay.objects.filter(day=utc_day_text(now)).values_list("key_id", "bytes"))


def build_stored_today_subquery(now: datetime) -> Subquery:
    """Return a subquery of how many bytes the key of an outer query of keys has stored today."""
    return Subquery(
        KeyStorageDay.objects.filter(key_id=OuterRef("pk"), day=utc_day_text(now)).values("bytes")
    )


def delete_old_quota_days(now: datetime) -> None:
    """Delete the sums of days long past."""
    old = KeyStorageDay.objects.filter(day__lt=utc_day_text(now - timedelta(days=STORAGE_RETENTION_DAYS)))
    if old.exists():
        old.delete()


def is_api_key_caller(caller: str) -> bool:
    return caller.startswith(_KEY) and caller[len(_KEY) :].lstrip("-").isdecimal()


def utc_day_text(now: datetime) -> str:
    return f"{now.astimezone(UTC):%Y-%m-%d}"


def end_of_utc_day(now: datetime) -> datetime:
    return datetime.combine(now.astimezone(UTC).date() + timedelta(days=1), time(), UTC)
