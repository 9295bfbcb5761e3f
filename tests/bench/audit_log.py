"""What the audit log costs when it is long: an entry more, a proof, the check of everything.

    export SIGNALBOX_DATA_DIR=/tmp/long-log          # or DATABASE_URL=postgres://…; a database of its own, please
    python manage.py migrate
    python -m tests.bench.audit_log --entries 1000000

Works inside, on the database that the environment names. Fills the log in large transactions, seals it, and then prints
one Markdown row a measurement: processor time (PostgreSQL's own included) and the clock. Appending is measured against
the same writes without a leaf (the trigger taken down), in turns; those rows are deleted again.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import django

from tests.bench.finding import processor_seconds

STEP = 10_000  # entries filled in one transaction
ROUNDS, IN_A_ROUND = 20, 100  # appended entries, each in a transaction of its own
PROOFS = 200


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of the processor and of the clock."""

    processor: float
    clock: float


@contextmanager
def measured() -> Iterator[list[Cost]]:
    """Measure the block; its cost is in the list afterwards."""
    cost: list[Cost] = []
    used, began = processor_seconds(), time.perf_counter()
    yield cost
    cost.append(Cost(processor_seconds() - used, time.perf_counter() - began))


def row(what: str, processor: str, clock: str) -> None:
    print(f"| {what} | {processor} | {clock} |", flush=True)


def fill(wanted: int) -> None:
    """Write entries as Signalbox would, until there are so many."""
    from coordinator.models import AuditLeaf, AuditLog

    missing = wanted - AuditLeaf.objects.count()
    while missing > 0:
        some = min(missing, STEP)
        first = AuditLog.objects.order_by("-pk").values_list("pk", flat=True).first() or 0
        write_many(first + 1, some)
        missing -= some
        if sys.stderr.isatty():
            print(f"\r{wanted - missing:,} entries", end="", file=sys.stderr, flush=True)


def write_many(first: int, number: int) -> None:
    from django.db import connection, transaction
    from django.utils import timezone

    from coordinator.actions.audit.audit import SET_HASH
    from coordinator.models import AuditLog
    from coordinator.transparency import entries

    now = timezone.now()
    rows = [
        AuditLog(
            pk=pk, timestamp=now, event_type="TOOL_CALL_ALLOWED", actor_id="rule:7", target_id=f"call-{pk}",
            permission="Bash", result="allowed", reason="Tests may run.",
            metadata={"judged": {"tool_name": "Bash", "tool_input": {"command": f"make check-{pk}"}}, "v": "1"},
        )
        for pk in range(first, first + number)
    ]  # fmt: skip
    with transaction.atomic(), connection.cursor() as cursor:
        AuditLog.objects.bulk_create(rows, batch_size=90)
        hashes = [
            (
                entries.compute_audit_leaf_hash_bytes(
                    entries.columns_of_written_audit_row(one), by_signalbox=True
                ),
                True,
                one.pk,
            )
            for one in rows
        ]
        cursor.executemany(SET_HASH, hashes)
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT setval(pg_get_serial_sequence('audit_logs', 'id'), (SELECT max(id) FROM audit_logs))"
            )


def append(number: int, *, with_leaf: bool) -> Cost:
    """Return what so many entries cost, each in a transaction of its own."""
    from django.db import transaction

    from coordinator.actions.audit import audit
    from coordinator.identity.actors import system_actor

    with measured() as cost:
        for one in range(number):
            with transaction.atomic():
                audit.record_audit_entry(
                    "TOOL_CALL_ALLOWED", actor=system_actor("bench"), target=f"bench-{one}", result="allowed",
                    permission="Bash", reason="Tests may run.",
                    metadata={"judged": {"tool_name": "Bash", "tool_input": {"command": f"make {one}"}}},
                    with_leaf=with_leaf,
                )  # fmt: skip
    return cost[0]


@contextmanager
def no_trigger() -> Iterator[None]:
    """Write without leaves within the block, and delete what was written."""
    from django.db import connection

    from coordinator.models import AuditLog

    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute("SELECT sql FROM sqlite_master WHERE name = 'sbx_audit_leaf'")
            (definition,) = cursor.fetchone()
            cursor.execute("DROP TRIGGER sbx_audit_leaf")
        else:
            definition = "ALTER TABLE audit_logs ENABLE TRIGGER sbx_audit_leaf"
            cursor.execute("ALTER TABLE audit_logs DISABLE TRIGGER sbx_audit_leaf")
        last = AuditLog.objects.order_by("-pk").values_list("pk", flat=True).first() or 0
        yield
        AuditLog.objects.filter(pk__gt=last).delete()
        cursor.execute(definition)


def measure_appending() -> None:
    with_leaf, without = [], []
    for number in range(ROUNDS + 1):
        one = append(IN_A_ROUND, with_leaf=True)
        with no_trigger():
            other = append(IN_A_ROUND, with_leaf=False)
        if number:  # the first round is for warming up
            with_leaf.append(one)
            without.append(other)
    for what, costs in (("an entry", with_leaf), ("the same without a leaf", without)):
        row(what, *(f"{value:.3f} ms" for value in middles(costs)))
    more = [one - other for one, other in zip(middles(with_leaf), middles(without), strict=True)]
    row("the leaf alone", *(f"{value:.3f} ms" for value in more))


def middles(costs: list[Cost]) -> tuple[float, float]:
    """Return the middle round's milliseconds an entry: of the processor, and of the clock."""
    per = 1000 / IN_A_ROUND
    return (
        statistics.median(one.processor for one in costs) * per,
        statistics.median(one.clock for one in costs) * per,
    )


def measure_proofs(size: int) -> None:
    from coordinator.models import AuditLeaf, AuditLog
    from coordinator.transparency import proofs

    costs = []
    for number in random.sample(range(size), PROOFS):
        entry = AuditLog.objects.get(pk=AuditLeaf.objects.get(leaf_index=number).audit_id)
        with measured() as cost:
            proofs.create_inclusion_proof_for_row(entry)
        costs.append(cost[0])
    clocks = sorted(one.clock * 1000 for one in costs)
    used = statistics.mean(one.processor for one in costs) * 1000
    row(
        "one proof",
        f"{used:.1f} ms",
        f"p50 {clocks[len(clocks) // 2]:.1f} ms, p99 {clocks[-3]:.1f} ms",
    )


def timed(what: str, do: Callable[[], object]) -> object:
    with measured() as cost:
        done = do()
    row(what, f"{cost[0].processor:.1f} s", f"{cost[0].clock:.1f} s")
    return done


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--entries", type=int, default=1_000_000)
    given = parser.parse_args()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "coordinator.settings")
    django.setup()
    from django.utils import timezone

    from coordinator.actions.audit import sealing
    from coordinator.transparency import keys, log_check, state, tree

    fill(given.entries)
    print("| what | processor | clock |\n|---|---:|---:|")
    timed("sealing all of it for the first time", lambda: sealing.sign_audit_checkpoint(timezone.now()))
    size = tree.count_log_entries()
    measure_proofs(size)
    report = timed(
        "checking all of it",
        lambda: log_check.check_entire_audit_log([], keys.load_log_verifiers(), timezone.now()),
    )
    assert isinstance(report, log_check.LogCheckReport)
    assert (report.entries, report.problems) == (size, []), report.problems[:3]
    timed("the state for the pages", lambda: state.load_log_state(timezone.now()))
    measure_appending()
    timed(
        f"sealing {(ROUNDS + 1) * IN_A_ROUND:,} more", lambda: sealing.sign_audit_checkpoint(timezone.now())
    )
    print(f"{tree.count_log_entries():,} entries")


if __name__ == "__main__":
    main()
