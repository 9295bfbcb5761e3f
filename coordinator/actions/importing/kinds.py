"""Tables with rules of their own: what decides, what waits, what has a file, what another version keeps elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from django.db import connection, transaction
from django.utils import timezone

from coordinator.actions import approvals, deleted_agents, runs
from coordinator.actions import attachments as attachment_actions
from coordinator.actions.attachments import KeptFile
from coordinator.actions.importing import rows
from coordinator.actions.importing.tables import Candidate, Job, TableImport
from coordinator.chat import attachments
from coordinator.engine import bulk
from coordinator.errors import Busy
from coordinator.importing import seeds
from coordinator.importing.foreign import Row, Table
from coordinator.lib import instants
from coordinator.mcp import credentials
from coordinator.models import DeletedAgent
from coordinator.models.audit import AUDIT_KEPT
from coordinator.models.fields import dump
from coordinator.policy.approvals import APPROVED
from coordinator.runs.statuses import OPEN
from coordinator.secrets.masking import without_secrets
from coordinator.sessions.events import CONTEXT_COLUMNS

MOST_LENGTH = 4_096  # of a path
IMPORT = "import"  # who set a credential that came with a database
BY_OTHERS = "other"  # the source of events that no door took in


class Plugins(TableImport):
    """Without a person's word, no plugin may do more than before: one that is new here may do nothing."""

    def admitted(self, candidates: list[Candidate]) -> list[Candidate]:
        """Take their permissions from those that no installation begins with."""
        seeded = seeds.SEEDS[self.table.name]
        self._disarm(one for one in candidates if (one.row["plugin_id"],) not in seeded)
        return candidates

    def allowed(self, candidates: list[Candidate]) -> list[Candidate]:
        """Take them too from those that this installation began with and has no more."""
        self._disarm(candidates)
        return candidates

    def _disarm(self, candidates: Iterable[Candidate]) -> None:
        for one in candidates:
            if not self.job.with_policy and _list(one.row.get("allowed_permissions")):
                self.disarmed += 1
                one.row["allowed_permissions"] = dump([])

    def seed_replaced_by(self, row: Row, ours: Row) -> Row:
        """Return the owner's row, with no permission that the seed has not."""
        theirs, seeded = _list(row.get("allowed_permissions")), _list(ours.get("allowed_permissions")) or []
        if self.job.with_policy or theirs is None or set(map(str, theirs)) <= set(map(str, seeded)):
            return row
        self.disarmed += 1
        return {**row, "allowed_permissions": dump([one for one in theirs if one in seeded])}

    def _tell(self) -> None:
        super()._tell()
        if self.disarmed:
            self.outcome.notes.append(
                f"{self.disarmed} plugins had more permissions there. They keep those they have here; new ones come in"
                " with none. --with-policy gives them all."
            )


class Agents(TableImport):
    """The id of an agent that was deleted here comes in only once nothing here names it."""

    def allowed(self, candidates: list[Candidate]) -> list[Candidate]:
        refused = deleted_agents.refused_ids(str(one.row["id"]) for one in candidates)
        for one in candidates:
            if str(one.row["id"]) in refused:
                self._leave_out(one.raw, refused[str(one.row["id"])])
        return [one for one in candidates if str(one.row["id"]) not in refused]

    def after(self, written: list[Candidate], standing: list[Candidate]) -> None:  # one shape
        DeletedAgent.objects.filter(pk__in=[str(one.row["id"]) for one in written]).delete()


class Servers(TableImport):
    """Without a person's word, servers that are open to all come in closed. Their environment is kept with them."""

    placed = frozenset({"env"})

    def admitted(self, candidates: list[Candidate]) -> list[Candidate]:
        for one in candidates:
            if not self.job.with_policy and one.row.get("default_policy") == "opt-out":
                self.disarmed += 1
                one.row["default_policy"] = "opt-in"
        return candidates

    def after(self, written: list[Candidate], standing: list[Candidate]) -> None:  # one shape
        """Keep the variables of servers that are here, sealed."""
        at = instants.canonical(timezone.now())
        found = [
            [
                one.row["name"],
                "env",
                name,
                self._sealed(one.row["name"], name, value),
                IMPORT,
                at,
            ]
            for one in standing
            for name, value in (variables(one.raw.get("env")) or {}).items()
        ]
        with connection.cursor() as cursor:
            cursor.executemany(
                rows.insert_sql(
                    "mcp_credentials",
                    ["server_id", "kind", "name", "value", "set_by", "set_at"],
                    skip_known=True,
                ),
                found,
            )

    def _sealed(self, server: str, name: str, value: str) -> str:
        """Seal a value. What is undone again makes no key: the first would stay as a file."""
        return credentials.sealed(server, "env", name, value) if self.job.write else ""

    def _keep_homeless(self, row: Row, rest: Row) -> None:
        if variables(rest.get("env")) is not None:
            rest = {**rest, "env": None}
        super()._keep_homeless(row, rest)

    def _tell(self) -> None:
        super()._tell()
        if self.disarmed:
            self.outcome.notes.append(
                f"{self.disarmed} servers were open to all agents and come in closed (opt-in)."
                " --with-policy keeps them open."
            )


class Grants(TableImport):
    """Without a person's word, grants stay out, and each is told with what it would allow."""

    def allowed(self, candidates: list[Candidate]) -> list[Candidate]:
        if self.job.with_policy:
            return candidates
        self.disarmed += len(candidates)
        for one in candidates:
            what = one.row.get("tool_name") or "every tool"
            self._leave_out(one.raw, f"{one.row.get('permission')} {what} of {one.row.get('server_id')}")
        return []

    def _tell(self) -> None:
        super()._tell()
        if self.disarmed:
            self.outcome.notes.append(
                f"{self.disarmed} grants were left out. Check them, then import them with --with-policy."
            )


class Requests(TableImport):
    """Without a person's word, each approval counts for its own request alone."""

    def after(self, written: list[Candidate], standing: list[Candidate]) -> None:  # one shape
        if self.job.with_policy:
            return
        ids = [str(one.row["request_id"]) for one in written if one.row.get("status") in APPROVED]
        self.disarmed += len(ids)
        approvals.keep_to_their_requests(ids)

    def _tell(self) -> None:
        super()._tell()
        if self.disarmed:
            self.outcome.notes.append(
                f"{self.disarmed} approvals count only for their own request."
                " --with-policy keeps what they cover."
            )


class Messages(TableImport):
    """Where a message stands among the branches of its thread is kept with it."""

    placed = frozenset({"parent_id", "branch_index"})

    def after(self, written: list[Candidate], standing: list[Candidate]) -> None:  # one shape
        found = [
            [one.row["id"], parent, index]
            for one in standing
            for parent, index in [branch_of(one.raw)]
            if parent is not None or index
        ]
        with connection.cursor() as cursor:
            cursor.executemany(
                rows.insert_sql(
                    "chat_branches", ["message_id", "parent_id", "branch_index"], skip_known=True
                ),
                found,
            )

    def _keep_homeless(self, row: Row, rest: Row) -> None:
        parent, index = branch_of(rest)
        placed = {
            name: None
            for name, value in (("parent_id", parent), ("branch_index", index))
            if value == rest.get(name)
        }
        super()._keep_homeless(row, {**rest, **placed})


class Attachments(TableImport):
    """A file that is not in the row is copied, and the row names the copy."""

    def __init__(self, job: Job, table: Table) -> None:
        super().__init__(job, table)
        self.kept: dict[str, KeptFile] = {}  # by name, of the row at hand
        self.with_files: list[Candidate] = []  # of the batch at hand

    def after(self, written: list[Candidate], standing: list[Candidate]) -> None:  # one shape
        """Note by what the copies are known again."""
        kept, self.kept = self.kept, {}
        attachment_actions.save_known(
            {one.row["id"]: kept[name] for one in written if (name := one.row.get("disk_path")) in kept}
        )

    def before(self, candidates: list[Candidate]) -> list[Candidate]:
        """Set those with files aside: no transaction lasts, nor do others wait to write, while a bucket takes them."""
        self.with_files = [one for one in candidates if one.row.get("storage_type") == "disk"]
        return [one for one in candidates if one.row.get("storage_type") != "disk"]

    def bring_slow_ones(self) -> None:
        """Copy each file, then write its row."""
        for one in self.with_files:
            if self._has_file(one):
                with transaction.atomic():
                    written = self._insert([one])
                    self.after(written, written)
        self.with_files = []

    def _has_file(self, one: Candidate) -> bool:
        disk_path = str(one.row.get("disk_path") or "")
        path = self.job.source.file_of(disk_path) if len(disk_path) <= MOST_LENGTH else None
        if path is None:
            self._leave_out(one.raw, f"its file {disk_path[:200]!r} was not found")
            return False
        try:
            with path.open("rb") as file:
                if self.job.write:
                    kept = attachment_actions.keep(file, str(one.row.get("mime_type") or ""))
                    one.row["disk_path"], self.kept[kept.name] = kept.name, kept
                else:
                    while file.read(attachments.CHUNK):
                        pass
        except Busy as problem:
            self._leave_out(one.raw, str(problem.detail))
            return False
        except OSError as problem:
            self._leave_out(one.raw, f"its file {disk_path[:200]!r} cannot be read: {problem.strerror}")
            return False
        return True

    def not_written(self, row: Row) -> None:
        """Remove the copy again."""
        if kept := self.kept.pop(row.get("disk_path") or "", None):
            kept.discard()


class AuditRows(TableImport):
    """Rows that the log's own clean-up would take away again at once are kept aside."""

    too_old = 0

    def admitted(self, candidates: list[Candidate]) -> list[Candidate]:
        limit = self.job.now - AUDIT_KEPT
        young = []
        for one in candidates:
            if _is_before(one.row.get("timestamp"), limit):
                self.too_old += 1
                self._keep("older than the log is kept", row=one.row)
            else:
                young.append(one)
        return young

    def _tell(self) -> None:
        super()._tell()
        if self.too_old:
            self.outcome.notes.append(
                f"{self.too_old} rows are older than the {AUDIT_KEPT.days} days that the audit log is kept,"
                " and are kept aside."
            )


class Runs(TableImport):
    """No runner begins what waited elsewhere, perhaps for months, before a person has said so.

    The newest coordinator has `parameters` where older ones have `prompt`: what is more than a prompt among them is
    kept beside the run, whose own prompt is empty where they hold none.
    """

    placed = frozenset({"parameters"})
    held = 0
    with_parameters = 0

    def adapt(self, raw: Row, row: Row) -> None:
        if "parameters" not in raw or row.get("prompt") is not None:
            return
        parameters = _object(raw["parameters"])
        prompt = None if parameters is None else parameters.get("prompt")
        row["prompt"] = prompt if isinstance(prompt, str) else ""
        if parameters is not None:
            raw["parameters"] = None

    def after(self, written: list[Candidate], standing: list[Candidate]) -> None:
        self.held += runs.hold((one.row["run_id"] for one in written), why=runs.IMPORTED, now=self.job.now)
        found = [
            [
                one.row["run_id"],
                dump(parameters if one.row.get("status") in OPEN else without_secrets(parameters)),
            ]
            for one in standing
            if (parameters := _object(one.raw.get("parameters"))) is not None
            and set(parameters) != {"prompt"}
        ]
        self.with_parameters += len(found)
        with connection.cursor() as cursor:
            cursor.executemany(
                rows.insert_sql("run_parameters", ["run_id", "parameters"], skip_known=True), found
            )

    def _tell(self) -> None:
        super()._tell()
        if self.with_parameters:
            self.outcome.notes.append(f"{self.with_parameters} have parameters, which are kept with them.")
        if self.held:
            self.outcome.notes.append(
                f"{self.held} had not ended and are held. Release or stop them on the page Runs."
            )


class Events(TableImport):
    """Each event comes with its context. A result of the newest coordinator stands where the doors put it."""

    placed = frozenset({"result_text", "result_data"})

    def adapt(self, raw: Row, row: Row) -> None:
        results = {name: raw.get(name) for name in ("result_text", "result_data")}
        if row.setdefault("tool_output") is not None or all(value is None for value in results.values()):
            return
        data = results["result_data"]
        parsed = _json(data)
        if isinstance(results["result_text"], str | None) and (data is None or parsed is not None):
            row["tool_output"] = dump({"result_text": results["result_text"], "result_data": parsed})
            raw.update(dict.fromkeys(results))

    def write(self, candidates: list[Candidate]) -> None:
        names = list(candidates[0].row)
        received = instants.to_us(self.job.now)
        bulk.insert_new_with(
            "events",
            names,
            [(list(one.row.values()), _context(one, received)) for one in candidates],
            beside="event_context",
            key="event_id",
            beside_columns=CONTEXT_COLUMNS,
        )


def _context(one: Candidate, received: int) -> list[Any]:
    at = instants.parse(one.row["timestamp"]) if one.row.get("timestamp") else None
    context = {
        "session_id": one.row["session_id"],
        "instant_us": received if at is None else instants.to_us(at),
        "received_at": received // 1000,
        "source": BY_OTHERS,
        "masked": one.masked,
    }
    return [context.get(name) for name in CONTEXT_COLUMNS]


def variables(env: Any) -> dict[str, str] | None:
    """Return the variables of a server's environment, which is JSON: an object, or a list of `NAME=value`."""
    found = _json(env)
    if isinstance(found, list) and all(isinstance(one, str) and "=" in one for one in found):
        found = dict(one.split("=", 1) for one in found)
    if not isinstance(found, dict):
        return None
    extra = {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in found.items()
        if name.strip()
    }
    return None if any("\0" in f"{name}{value}" for name, value in extra.items()) else extra


def branch_of(raw: Mapping[str, Any]) -> tuple[str | None, int]:
    """Return the message that a message answers, and which of its answers it is, from 0; what is odd is left."""
    parent, index = raw.get("parent_id"), raw.get("branch_index")
    fits = isinstance(parent, str) and "\0" not in parent
    return (str(parent) if fits else None), (index if isinstance(index, int) else 0)


def _json(text: Any) -> Any:
    try:
        return json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return None


def _object(text: Any) -> dict[str, Any] | None:
    found = _json(text)
    return found if isinstance(found, dict) else None


def _list(text: Any) -> list[Any] | None:
    found = _json(text)
    return found if isinstance(found, list) else None


def _is_before(text: Any, limit: datetime) -> bool:
    at = instants.parse(text) if isinstance(text, str) else None
    return at is not None and at < limit


KINDS: Mapping[str, type[TableImport]] = {
    "agents": Agents,
    "plugin_settings": Plugins,
    "mcp_servers": Servers,
    "mcp_access_control": Grants,
    "permission_requests": Requests,
    "chat_messages": Messages,
    "chat_attachments": Attachments,
    "audit_logs": AuditRows,
    "runs": Runs,
    "events": Events,
}


def import_of(job: Job, table: Table) -> TableImport:
    """Return the importer of this table."""
    return KINDS.get(table.name, TableImport)(job, table)
