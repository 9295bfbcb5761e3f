"""Import of an existing database: existing rows stay, conflicts are reported.

Only untouched rows that an installation begins with are overwritten. What has no column here is written to a file.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import datetime
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import Error as DatabaseError
from django.db import connection, transaction

from coordinator.actions.audit import audit
from coordinator.actions.chat import chat_search
from coordinator.actions.importing import blueprints, table_importers
from coordinator.actions.importing.outcomes import ImportOutcome, TableOutcome
from coordinator.actions.importing.tables import ImportJob, Progress
from coordinator.actions.sessions import events
from coordinator.engine import rolled_back_writes
from coordinator.errors import BadRequest, SignalboxError
from coordinator.identity.actors import system_actor
from coordinator.importing.import_files import RejectedRows, restore_raw_bytes_in_row
from coordinator.importing.source_database import TABLES, SourceDatabase

__all__ = ["ImportOutcome", "TableOutcome", "import_database", "record_unreadable_database"]

EVENT = "DATABASE_IMPORTED"
MAX_AUDITED_REASONS = 20  # lines in the audit log


def import_database(
    source: SourceDatabase,
    *,
    now: datetime,
    write: bool = True,
    with_policy: bool = False,
    agents_folder: Path | None = None,
    progress: Progress = lambda *_: None,
) -> ImportOutcome:
    """Import every table that both databases have, and write what has no column here to a file.

    `agents_folder` is where the other program stores blueprints as files, with its capabilities next to it.

    Without `write` exactly the same is done and rolled back: nothing is changed, and no file is left. `with_policy`
    means that a person agreed to import what decides there: grants, servers whose tools all may call, and approvals
    that cover later requests. Without it grants are left out, such servers are imported closed, and each approval
    counts for its own request alone. Raises BadRequest where it had to stop; what was committed before that stays.
    """
    rejected_rows = RejectedRows(Path(settings.DATA_DIR) if write else source.folder, source.path, now)
    job = ImportJob(source, rejected_rows, now, write, with_policy)
    done = ImportOutcome([])
    with nullcontext() if write else rolled_back_writes.roll_back_writes_of_block(source.folder):
        with translate_import_errors_during_block(job, done):
            import_all_tables(job, done, progress)
            if agents_folder is not None:
                done.outcomes += blueprints.import_blueprint_files(job, agents_folder, progress)
        record_import_audit_entry(job, done, None)
        save_import_report(job, done, None)
    if not write:
        rejected_rows.discard_rejected_rows()
        done.report = done.aside = None
    return done


def record_unreadable_database(path: Path, reason: str, now: datetime) -> None:
    """Write down that a database could not be read at all."""
    audit.record_audit_entry(
        EVENT, actor=system_actor("import"), target=path.name, result="failure", reason=reason, now=now
    )


def import_all_tables(job: ImportJob, done: ImportOutcome, progress: Progress) -> None:
    for table in TABLES:
        if table.name in job.source.source_table_names:
            table_import = table_importers.build_table_import(job, table)
            done.outcomes.append(table_import.outcome)
            table_import.import_table_rows(progress)
    for name in job.source.unknown_source_tables:
        done.outcomes.append(save_unknown_table_rows(job, name, progress))
    events.add_all_missing_event_contexts(job.now)
    chat_search.index_unindexed_chat_messages(job.now)


def save_unknown_table_rows(job: ImportJob, name: str, progress: Progress) -> TableOutcome:
    """Keep every row of a table that has no place here."""
    outcome = TableOutcome(name, job.source.source_row_count(name), is_known=False)
    outcome.unreadable += job.source.unreadable_row_reports(name)
    for batch in job.source.iterate_row_chunks(name):
        for row in batch:
            job.rejected_rows.write_rejected_row_within_limit(
                name, "no such table here", row=restore_raw_bytes_in_row(row)
            )
        outcome.aside += len(batch)
        progress(name, outcome.aside, outcome.rows)
    return outcome


@contextmanager
def translate_import_errors_during_block(job: ImportJob, done: ImportOutcome) -> Iterator[None]:
    """Turn what ends an import early into one line, which the audit log and the report have, too."""
    try:
        yield
    except (DatabaseError, OSError, SignalboxError) as problem:
        line = (str(getattr(problem, "detail", problem)).strip().splitlines() or [type(problem).__name__])[0]
        where = f" at the table {done.outcomes[-1].table}" if done.outcomes else ""
        stays = " What came in before that stays; repeat the import to go on." if job.write else ""
        message = f"The import of {job.source.path} stopped{where}: {line}.{stays}"
        if job.write:
            record_stopped_import(job, done, message)
        else:
            job.rejected_rows.discard_rejected_rows()
        raise BadRequest(message) from problem


def record_stopped_import(job: ImportJob, done: ImportOutcome, message: str) -> None:
    try:
        if not connection.needs_rollback:
            with transaction.atomic():
                record_import_audit_entry(job, done, message)
        save_import_report(job, done, message)
    except (DatabaseError, OSError, SignalboxError):
        return  # what ended the import may well prevent this, too; the command says it


def record_import_audit_entry(job: ImportJob, done: ImportOutcome, stopped: str | None) -> None:
    reasons = [stopped] if stopped else done.unreadable_lines
    metadata: dict[str, Any] = {
        "added": {outcome.table: outcome.added for outcome in done.outcomes if outcome.added},
        "conflicts": sum(outcome.conflicts.total for outcome in done.outcomes),
        "left_out": sum(outcome.left_out.total for outcome in done.outcomes),
        "kept_aside": {outcome.table: outcome.aside for outcome in done.outcomes if outcome.aside},
        "unknown_tables": {outcome.table: outcome.rows for outcome in done.outcomes if not outcome.is_known},
        "replaced": {outcome.table: outcome.replaced for outcome in done.outcomes if outcome.replaced},
        "changed": {
            outcome.table: sum(outcome.changed.values()) for outcome in done.outcomes if outcome.changed
        },
        "with_policy": job.with_policy,
    }
    if reasons:
        metadata["could_not_be_read" if not stopped else "stopped"] = reasons[:MAX_AUDITED_REASONS]
    audit.record_audit_entry(
        EVENT,
        actor=system_actor("import"),
        target=job.source.path.name,
        result="failure" if reasons else "success",
        reason=build_import_audit_reason(stopped, len(done.unreadable_lines)),
        metadata=metadata,
        now=job.now,
    )


def build_import_audit_reason(stopped: str | None, damaged: int) -> str | None:
    if stopped:
        return stopped
    return f"{damaged} damaged places could not be read; all else was imported." if damaged else None


def save_import_report(job: ImportJob, done: ImportOutcome, stopped: str | None) -> None:
    done.dropped_rows = job.rejected_rows.left_out
    done.report = job.rejected_rows.write_import_report_and_close(
        {
            "source": str(job.source.path),
            "at": job.now.isoformat(),
            "with_policy": job.with_policy,
            "stopped": stopped,
            "texts_that_were_not_utf8": job.source.replaced,
            "tables": [outcome.as_report_dict() for outcome in done.outcomes],
        }
    )
    done.aside = job.rejected_rows.stored_path
