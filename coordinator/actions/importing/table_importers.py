"""Importers of tables with rules of their own: policy, pending rows, rows with files, changed storage."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from django.db import connection, transaction
from django.utils import timezone

from coordinator.actions import approvals, runs
from coordinator.actions.agents import deleted_agents
from coordinator.actions.chat import attachments as attachment_actions
from coordinator.actions.chat.attachments import WrittenFile
from coordinator.actions.importing import rows
from coordinator.actions.importing.tables import ImportCandidate, ImportJob, TableImport
from coordinator.chat import attachments
from coordinator.engine import bulk
from coordinator.errors import ServiceBusy
from coordinator.importing import seeds
from coordinator.importing.source_database import ImportableTable, Row
from coordinator.lib import instants
from coordinator.mcp.servers import credentials
from coordinator.models import DeletedAgent
from coordinator.models.audit import AUDIT_RETENTION
from coordinator.models.fields import dump_compact_json
from coordinator.policy.requests.approvals import APPROVED
from coordinator.runs.statuses import OPEN
from coordinator.secrets.masking import mask_secrets_in_value
from coordinator.sessions.events import CONTEXT_COLUMNS

MOST_LENGTH = 4_096  # of a path
IMPORT = "import"  # who set a credential that came with a database
BY_OTHERS = "other"  # the source of events that no endpoint took in


class PluginImport(TableImport):
    """Without a person's word, no plugin may do more than before: one that is new here may do nothing."""

    def restrict_incoming_rows(self, candidates: list[ImportCandidate]) -> list[ImportCandidate]:
        """Take their permissions from those that no installation begins with."""
        seeded = seeds.SEEDS[self.table.name]
        self.clear_plugin_permissions(
            candidate for candidate in candidates if (candidate.row["plugin_id"],) not in seeded
        )
        return candidates

    def restrict_new_rows(self, candidates: list[ImportCandidate]) -> list[ImportCandidate]:
        """Take them too from those that this installation began with and has no more."""
        self.clear_plugin_permissions(candidates)
        return candidates

    def clear_plugin_permissions(self, candidates: Iterable[ImportCandidate]) -> None:
        for candidate in candidates:
            if not self.job.with_policy and parse_imported_list_or_none(
                candidate.row.get("allowed_permissions")
            ):
                self.disarmed += 1
                candidate.row["allowed_permissions"] = dump_compact_json([])

    def build_seed_replacement_row(self, row: Row, stored_row: Row) -> Row:
        """Return the owner's row, with no permission that the seed has not."""
        foreign_row, seeded = (
            parse_imported_list_or_none(row.get("allowed_permissions")),
            parse_imported_list_or_none(stored_row.get("allowed_permissions")) or [],
        )
        if self.job.with_policy or foreign_row is None or set(map(str, foreign_row)) <= set(map(str, seeded)):
            return row
        self.disarmed += 1
        return {
            **row,
            "allowed_permissions": dump_compact_json(
                [permission for permission in foreign_row if permission in seeded]
            ),
        }

    def add_outcome_notes(self) -> None:
        super().add_outcome_notes()
        if self.disarmed:
            self.outcome.notes.append(
                f"{self.disarmed} plugins had more permissions there. They keep those they have here; new ones come in"
                " with none. --with-policy gives them all."
            )


class AgentImport(TableImport):
    """The id of an agent that was deleted here comes in only once nothing here names it."""

    def restrict_new_rows(self, candidates: list[ImportCandidate]) -> list[ImportCandidate]:
        refused = deleted_agents.reservation_reasons_by_agent_id(
            str(candidate.row["id"]) for candidate in candidates
        )
        for candidate in candidates:
            if str(candidate.row["id"]) in refused:
                self.record_skipped_row(candidate.raw, refused[str(candidate.row["id"])])
        return [candidate for candidate in candidates if str(candidate.row["id"]) not in refused]

    def process_rows_after_insert(
        self, written: list[ImportCandidate], candidates: list[ImportCandidate]
    ) -> None:  # one shape
        DeletedAgent.objects.filter(pk__in=[str(row_import.row["id"]) for row_import in written]).delete()


class ServerImport(TableImport):
    """Without a person's word, servers that are open to all come in closed. Their environment is kept with them."""

    placed = frozenset({"env"})

    def restrict_incoming_rows(self, candidates: list[ImportCandidate]) -> list[ImportCandidate]:
        for candidate in candidates:
            if not self.job.with_policy and candidate.row.get("default_policy") == "opt-out":
                self.disarmed += 1
                candidate.row["default_policy"] = "opt-in"
        return candidates

    def process_rows_after_insert(
        self, written: list[ImportCandidate], candidates: list[ImportCandidate]
    ) -> None:  # one shape
        """Keep the variables of servers that are here, sealed."""
        at = instants.format_canonical_instant(timezone.now())
        server_names = [
            [
                server_row.row["name"],
                "env",
                name,
                self.encrypt_server_variable(server_row.row["name"], name, value),
                IMPORT,
                at,
            ]
            for server_row in candidates
            for name, value in (parse_environment_variables_or_none(server_row.raw.get("env")) or {}).items()
        ]
        with connection.cursor() as cursor:
            cursor.executemany(
                rows.build_insert_sql(
                    "mcp_credentials",
                    ["server_id", "kind", "name", "value", "set_by", "set_at"],
                    skip_known=True,
                ),
                server_names,
            )

    def encrypt_server_variable(self, server: str, name: str, value: str) -> str:
        """Seal a value. What is undone again makes no key: the first would stay as a file."""
        return credentials.seal_credential(server, "env", name, value) if self.job.write else ""

    def save_values_without_column(self, row: Row, rest: Row) -> None:
        if parse_environment_variables_or_none(rest.get("env")) is not None:
            rest = {**rest, "env": None}
        super().save_values_without_column(row, rest)

    def add_outcome_notes(self) -> None:
        super().add_outcome_notes()
        if self.disarmed:
            self.outcome.notes.append(
                f"{self.disarmed} servers were open to all agents and come in closed (opt-in)."
                " --with-policy keeps them open."
            )


class GrantImport(TableImport):
    """Importer that, unless a person agreed, leaves grants out and reports what each would allow."""

    def restrict_new_rows(self, candidates: list[ImportCandidate]) -> list[ImportCandidate]:
        if self.job.with_policy:
            return candidates
        self.disarmed += len(candidates)
        for candidate in candidates:
            tool_label = candidate.row.get("tool_name") or "every tool"
            self.record_skipped_row(
                candidate.raw,
                f"{candidate.row.get('permission')} {tool_label} of {candidate.row.get('server_id')}",
            )
        return []

    def add_outcome_notes(self) -> None:
        super().add_outcome_notes()
        if self.disarmed:
            self.outcome.notes.append(
                f"{self.disarmed} grants were left out. Check them, then import them with --with-policy."
            )


class RequestImport(TableImport):
    """Without a person's word, each approval counts for its own request alone."""

    def process_rows_after_insert(
        self, written: list[ImportCandidate], candidates: list[ImportCandidate]
    ) -> None:  # one shape
        if self.job.with_policy:
            return
        ids = [
            str(row_import.row["request_id"])
            for row_import in written
            if row_import.row.get("status") in APPROVED
        ]
        self.disarmed += len(ids)
        approvals.limit_approvals_to_own_request(ids)

    def add_outcome_notes(self) -> None:
        super().add_outcome_notes()
        if self.disarmed:
            self.outcome.notes.append(
                f"{self.disarmed} approvals count only for their own request."
                " --with-policy keeps what they cover."
            )


class MessageImport(TableImport):
    """Importer that also keeps a message's position among the branches of its thread."""

    placed = frozenset({"parent_id", "branch_index"})

    def process_rows_after_insert(
        self, written: list[ImportCandidate], candidates: list[ImportCandidate]
    ) -> None:  # one shape
        message_ids = [
            [message_row.row["id"], parent, index]
            for message_row in candidates
            for parent, index in [parse_parent_and_branch_index(message_row.raw)]
            if parent is not None or index
        ]
        with connection.cursor() as cursor:
            cursor.executemany(
                rows.build_insert_sql(
                    "chat_branches", ["message_id", "parent_id", "branch_index"], skip_known=True
                ),
                message_ids,
            )

    def save_values_without_column(self, row: Row, rest: Row) -> None:
        parent, index = parse_parent_and_branch_index(rest)
        placed = {
            name: None
            for name, value in (("parent_id", parent), ("branch_index", index))
            if value == rest.get(name)
        }
        super().save_values_without_column(row, {**rest, **placed})


class AttachmentImport(TableImport):
    """A file that is not in the row is copied, and the row names the copy."""

    def __init__(self, job: ImportJob, table: ImportableTable) -> None:
        super().__init__(job, table)
        self.written_files: dict[str, WrittenFile] = {}  # by name, of the row at hand
        self.with_files: list[ImportCandidate] = []  # of the batch at hand

    def process_rows_after_insert(
        self, written: list[ImportCandidate], candidates: list[ImportCandidate]
    ) -> None:  # one shape
        """Note by what the copies are known again."""
        stored_files, self.written_files = self.written_files, {}
        attachment_actions.create_stored_file_rows(
            {
                row_import.row["id"]: stored_files[name]
                for row_import in written
                if (name := row_import.row.get("disk_path")) in stored_files
            }
        )

    def select_rows_to_write(self, candidates: list[ImportCandidate]) -> list[ImportCandidate]:
        """Set those with files aside: no transaction lasts, nor do others wait to write, while a bucket takes them."""
        self.with_files = [
            candidate for candidate in candidates if candidate.row.get("storage_type") == "disk"
        ]
        return [candidate for candidate in candidates if candidate.row.get("storage_type") != "disk"]

    def import_deferred_rows(self) -> None:
        """Copy each file, then write its row."""
        for row_import in self.with_files:
            if self.try_copy_attachment_from_source(row_import):
                with transaction.atomic():
                    written = self.insert_candidates([row_import])
                    self.process_rows_after_insert(written, written)
        self.with_files = []

    def try_copy_attachment_from_source(self, candidate: ImportCandidate) -> bool:
        disk_path = str(candidate.row.get("disk_path") or "")
        path = self.job.source.find_attachment_file(disk_path) if len(disk_path) <= MOST_LENGTH else None
        if path is None:
            self.record_skipped_row(candidate.raw, f"its file {disk_path[:200]!r} was not found")
            return False
        try:
            with path.open("rb") as file:
                if self.job.write:
                    stored_file = attachment_actions.store_and_fingerprint_attachment_file(
                        file, str(candidate.row.get("mime_type") or "")
                    )
                    candidate.row["disk_path"], self.written_files[stored_file.name] = (
                        stored_file.name,
                        stored_file,
                    )
                else:
                    while file.read(attachments.CHUNK):
                        pass
        except ServiceBusy as problem:
            self.record_skipped_row(candidate.raw, str(problem.detail))
            return False
        except OSError as problem:
            self.record_skipped_row(
                candidate.raw, f"its file {disk_path[:200]!r} cannot be read: {problem.strerror}"
            )
            return False
        return True

    def undo_row_preparation(self, row: Row) -> None:
        """Remove the copy again."""
        if stored_file := self.written_files.pop(row.get("disk_path") or "", None):
            stored_file.delete_written_file()


class AuditRowImport(TableImport):
    """Rows that the log's own clean-up would take away again at once are kept aside."""

    too_old = 0

    def restrict_incoming_rows(self, candidates: list[ImportCandidate]) -> list[ImportCandidate]:
        limit = self.job.now - AUDIT_RETENTION
        young = []
        for candidate in candidates:
            if is_time_before(candidate.row.get("timestamp"), limit):
                self.too_old += 1
                self.save_rejected_row("older than the log is kept", row=candidate.row)
            else:
                young.append(candidate)
        return young

    def add_outcome_notes(self) -> None:
        super().add_outcome_notes()
        if self.too_old:
            self.outcome.notes.append(
                f"{self.too_old} rows are older than the {AUDIT_RETENTION.days} days that the audit log is kept,"
                " and are kept aside."
            )


class RunImport(TableImport):
    """Importer after which no runner begins an old queued run before a person has released it.

    The newest coordinator has `parameters` where older ones have `prompt`: parameters other than a prompt are stored
    with the run, whose own prompt is empty where they hold none.
    """

    placed = frozenset({"parameters"})
    on_hold_count = 0
    with_parameters = 0

    def fill_columns_from_source(self, raw: Row, row: Row) -> None:
        if "parameters" not in raw or row.get("prompt") is not None:
            return
        parameters = parse_imported_object_or_none(raw["parameters"])
        prompt = None if parameters is None else parameters.get("prompt")
        row["prompt"] = prompt if isinstance(prompt, str) else ""
        if parameters is not None:
            raw["parameters"] = None

    def process_rows_after_insert(
        self, written: list[ImportCandidate], candidates: list[ImportCandidate]
    ) -> None:
        self.on_hold_count += runs.hold_runs(
            (row_import.row["run_id"] for row_import in written), reason=runs.IMPORTED, now=self.job.now
        )
        run_ids = [
            [
                server_row.row["run_id"],
                dump_compact_json(
                    parameters if server_row.row.get("status") in OPEN else mask_secrets_in_value(parameters)
                ),
            ]
            for server_row in candidates
            if (parameters := parse_imported_object_or_none(server_row.raw.get("parameters"))) is not None
            and set(parameters) != {"prompt"}
        ]
        self.with_parameters += len(run_ids)
        with connection.cursor() as cursor:
            cursor.executemany(
                rows.build_insert_sql("run_parameters", ["run_id", "parameters"], skip_known=True), run_ids
            )

    def add_outcome_notes(self) -> None:
        super().add_outcome_notes()
        if self.with_parameters:
            self.outcome.notes.append(f"{self.with_parameters} have parameters, which are kept with them.")
        if self.on_hold_count:
            self.outcome.notes.append(
                f"{self.on_hold_count} had not ended and are held. Release or stop them on the page Runs."
            )


class EventImport(TableImport):
    """Each event comes with its context. A result of the newest coordinator goes where the endpoints write it."""

    placed = frozenset({"result_text", "result_data"})

    def fill_columns_from_source(self, raw: Row, row: Row) -> None:
        results = {name: raw.get(name) for name in ("result_text", "result_data")}
        if row.setdefault("tool_output") is not None or all(value is None for value in results.values()):
            return
        data = results["result_data"]
        parsed = parse_imported_json_or_none(data)
        if isinstance(results["result_text"], str | None) and (data is None or parsed is not None):
            row["tool_output"] = dump_compact_json(
                {"result_text": results["result_text"], "result_data": parsed}
            )
            raw.update(dict.fromkeys(results))

    def insert_rows(self, candidates: list[ImportCandidate]) -> None:
        names = list(candidates[0].row)
        received = instants.instant_to_microseconds(self.job.now)
        bulk.insert_rows_into_two_tables(
            "events",
            names,
            [
                (list(candidate.row.values()), imported_event_context_values(candidate, received))
                for candidate in candidates
            ],
            second_table="event_context",
            key="event_id",
            second_columns=CONTEXT_COLUMNS,
        )


def imported_event_context_values(candidate: ImportCandidate, received: int) -> list[Any]:
    at = (
        instants.parse_instant_or_none(candidate.row["timestamp"]) if candidate.row.get("timestamp") else None
    )
    context = {
        "session_id": candidate.row["session_id"],
        "instant_us": received if at is None else instants.instant_to_microseconds(at),
        "received_at": received // 1000,
        "source": BY_OTHERS,
        "masked": candidate.masked,
    }
    return [context.get(name) for name in CONTEXT_COLUMNS]


def parse_environment_variables_or_none(env: Any) -> dict[str, str] | None:
    """Return the variables of a server's environment, which is JSON: an object, or a list of `NAME=value`."""
    parsed = parse_imported_json_or_none(env)
    if isinstance(parsed, list) and all(isinstance(variable, str) and "=" in variable for variable in parsed):
        parsed = dict(variable.split("=", 1) for variable in parsed)
    if not isinstance(parsed, dict):
        return None
    extra = {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in parsed.items()
        if name.strip()
    }
    return None if any("\0" in f"{name}{value}" for name, value in extra.items()) else extra


def parse_parent_and_branch_index(raw: Mapping[str, Any]) -> tuple[str | None, int]:
    """Return the message that a message answers, and which of its answers it is, from 0; what is odd is left."""
    parent, index = raw.get("parent_id"), raw.get("branch_index")
    fits = isinstance(parent, str) and "\0" not in parent
    return (str(parent) if fits else None), (index if isinstance(index, int) else 0)


def parse_imported_json_or_none(text: Any) -> Any:
    try:
        return json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return None


def parse_imported_object_or_none(text: Any) -> dict[str, Any] | None:
    parsed = parse_imported_json_or_none(text)
    return parsed if isinstance(parsed, dict) else None


def parse_imported_list_or_none(text: Any) -> list[Any] | None:
    parsed = parse_imported_json_or_none(text)
    return parsed if isinstance(parsed, list) else None


def is_time_before(text: Any, limit: datetime) -> bool:
    at = instants.parse_instant_or_none(text) if isinstance(text, str) else None
    return at is not None and at < limit


KINDS: Mapping[str, type[TableImport]] = {
    "agents": AgentImport,
    "plugin_settings": PluginImport,
    "mcp_servers": ServerImport,
    "mcp_access_control": GrantImport,
    "permission_requests": RequestImport,
    "chat_messages": MessageImport,
    "chat_attachments": AttachmentImport,
    "audit_logs": AuditRowImport,
    "runs": RunImport,
    "events": EventImport,
}


def build_table_import(job: ImportJob, table: ImportableTable) -> TableImport:
    """Return the importer of this table."""
    return KINDS.get(table.name, TableImport)(job, table)
