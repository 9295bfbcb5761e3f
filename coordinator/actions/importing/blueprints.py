"""Import of blueprints and capabilities that another coordinator stores as files, unless the name exists."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from django.db import transaction

from coordinator.actions.agents import blueprints, capabilities
from coordinator.actions.importing.outcomes import TableOutcome
from coordinator.actions.importing.tables import ImportJob, Progress
from coordinator.errors import SignalboxError
from coordinator.identity.actors import system_actor
from coordinator.importing.blueprint_files import (
    BLUEPRINTS,
    KINDS,
    BlueprintFile,
    FileKind,
    iterate_blueprint_files,
)
from coordinator.models import Blueprint, Capability
from coordinator.runs import sealed_servers
from coordinator.secrets import mask_server_secrets
from coordinator.secrets.masking import mask_secrets_in_value

IMPORT = system_actor("import")
VALUE = "${VALUE}"  # in a dry run, in a value's place: sealing would make a key, which stays as a file
INACTIVE = "inactive"


def import_blueprint_files(job: ImportJob, agents_folder: Path, progress: Progress) -> list[TableOutcome]:
    """Import the folders of both kinds; return what became of each kind of which there is any."""
    outcomes = []
    for kind in KINDS:
        files = list(iterate_blueprint_files(agents_folder, kind))
        outcome = TableOutcome(kind.table, len(files))
        for number, found_file in enumerate(files, 1):
            import_blueprint_file_if_new(job, kind, found_file, outcome)
            progress(kind.table, number, len(files))
        if files:
            outcomes.append(outcome)
    return outcomes


def import_blueprint_file_if_new(
    job: ImportJob, kind: FileKind, found_file: BlueprintFile, outcome: TableOutcome
) -> None:
    if found_file.problem:
        record_skipped_blueprint_file(job, outcome, found_file, found_file.problem)
        return
    existing = find_blueprint_or_capability(kind, found_file.name)
    if existing is not None:
        different = find_fields_differing_from_file(kind, existing, found_file)
        if not different:
            outcome.present += 1
            return
        reason = f"{', '.join(different)} differ between the file and here"
        outcome.conflicts.add_line(f"{found_file.name}: {reason}")
        save_rejected_blueprint_file(job, outcome, found_file, reason)
        return
    try:
        with transaction.atomic():
            import_blueprint_or_capability(job, kind, found_file)
    except SignalboxError as problem:
        record_skipped_blueprint_file(job, outcome, found_file, str(problem.detail))
        return
    outcome.added += 1
    report_unsupported_file_fields(job, kind, found_file, outcome)


def find_blueprint_or_capability(kind: FileKind, name: str) -> Blueprint | Capability | None:
    model = Blueprint if kind is BLUEPRINTS else Capability
    return model._default_manager.filter(pk=name).first()


def import_blueprint_or_capability(job: ImportJob, kind: FileKind, found_file: BlueprintFile) -> None:
    fields = dict(found_file.fields)
    if not job.write and "mcp_servers" in fields:
        fields["mcp_servers"] = sealed_servers.map_server_values(fields["mcp_servers"], lambda *_: VALUE)
    if kind is not BLUEPRINTS:
        capabilities.create(found_file.name, fields, actor=IMPORT, now=job.now)
        return
    blueprints.add_blueprint(found_file.name, fields, actor=IMPORT, now=job.now)
    if not found_file.enabled:
        blueprints.change_blueprint_status(found_file.name, INACTIVE, actor=IMPORT, now=job.now)


def find_fields_differing_from_file(
    kind: FileKind, existing: Blueprint | Capability, found_file: BlueprintFile
) -> list[str]:
    """Return the names of the fields whose values differ between a file and the row of its name."""
    names = [name for name in kind.fields.__struct_fields__ if name != "name"]
    different = [
        name
        for name in [*names, kind.text_field]
        if drop_empty_values(getattr(existing, name)) != drop_empty_values(found_file.fields.get(name))
    ]
    if decrypt_mcp_servers_or_problem(kind, existing) != (found_file.fields.get("mcp_servers") or None):
        different.append("mcp_servers")
    if isinstance(existing, Blueprint) and (existing.status == INACTIVE) == found_file.enabled:
        different.append("status")
    return different


def drop_empty_values(value: Any) -> Any:
    """Return a value without what says nothing, so that what means the same compares equal."""
    if isinstance(value, dict):
        return {name: part for name, part in value.items() if part} or None
    return value or None


def decrypt_mcp_servers_or_problem(kind: FileKind, existing: Blueprint | Capability) -> Any:
    owner = f"{kind.stem} {existing.name}"
    try:
        return sealed_servers.unseal_server_values(existing.mcp_servers, owner) or None
    except SignalboxError as problem:
        return str(problem.detail)  # equal to no server


def report_unsupported_file_fields(
    job: ImportJob, kind: FileKind, found_file: BlueprintFile, outcome: TableOutcome
) -> None:
    """Say what of a file has no place here, and which of a blueprint's capabilities are missing."""
    if found_file.unplaced:
        names = ", ".join(sorted(found_file.unplaced))
        outcome.notes.append(
            f"{found_file.name} was imported without {names}, for which there is no place here."
        )
        outcome.aside += 1
        job.rejected_rows.write_rejected_row_within_limit(
            outcome.table,
            "no place here",
            key=found_file.name,
            values=mask_blueprint_file_values(found_file.unplaced),
        )
    if kind is BLUEPRINTS:
        wanted_names = found_file.fields.get("capabilities") or []
        there = Capability.objects.in_bulk(wanted_names)
        if missing := [name for name in wanted_names if name not in there]:
            outcome.notes.append(
                f"{found_file.name} needs capabilities that are not here: {', '.join(missing)}."
                " It cannot run until they are."
            )


def record_skipped_blueprint_file(
    job: ImportJob, outcome: TableOutcome, found_file: BlueprintFile, reason: str
) -> None:
    outcome.left_out.add_line(f"{found_file.name}: {reason}")
    save_rejected_blueprint_file(job, outcome, found_file, reason)


def save_rejected_blueprint_file(
    job: ImportJob, outcome: TableOutcome, found_file: BlueprintFile, reason: str
) -> None:
    outcome.aside += 1
    job.rejected_rows.write_rejected_row_within_limit(
        outcome.table, reason, row={"folder": found_file.name, **mask_blueprint_file_values(found_file.raw)}
    )


def mask_blueprint_file_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values of files without secrets, and without the values of MCP servers' variables and headers."""
    shown_values = {
        name: mask_server_secrets({name: value})[name] if name.startswith("MCP server ") else value
        for name, value in values.items()
    }
    for name, value in values.items():
        if name.endswith(".mcp.json") and isinstance(value, dict):
            shown_values[name] = {**value, "mcpServers": mask_server_secrets(value.get("mcpServers"))}
    masked_values: dict[str, Any] = mask_secrets_in_value(shown_values)
    return masked_values
