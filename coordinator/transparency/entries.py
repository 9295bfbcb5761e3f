"""What a leaf of the log says: one audit row in a canonical form (RFC 8785), from its columns as they are stored.

    {"v": 1, "id": 7, "timestamp": "…", "event_type": "…", "actor_id": …, "target_id": …, "permission": …,
     "result": "…", "reason": …, "metadata": {…} | null, "trace_id": …, "written_by": "signalbox" | "other program"}

`metadata` is the column's JSON where it stands in the compact form that we write and RFC 8785 has a form for it;
otherwise its text stands in `metadata_text`. Bytes that are no text stand as {"base64": "…"}.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import rfc8785
from django.db import DatabaseError, connection

from coordinator.engine.values import cast_to_bytes_sql
from coordinator.models import AuditLog
from coordinator.models.fields import dump_compact_json
from coordinator.transparency.merkle import leaf_hash

VERSION = 1
COLUMNS = tuple(str(field.column) for field in AuditLog._meta.concrete_fields)
MOST_SAFE = 2**53 - 1  # the largest integer that RFC 8785 writes as a number


def encode_canonical_audit_entry(columns: Mapping[str, Any], *, by_signalbox: bool) -> bytes:
    """Return the canonical form of a row, given what its columns hold."""
    entry = {name: canonical_column_value(value) for name, value in columns.items() if name != "metadata"}
    entry |= {"v": VERSION, "written_by": "signalbox" if by_signalbox else "other program"}
    stored = columns["metadata"]
    try:
        value = None if stored is None else json.loads(stored)
        if stored is None or dump_compact_json(value) == stored:
            return encode_rfc8785_json(entry | {"metadata": value})
    except (ValueError, TypeError, RecursionError, rfc8785.CanonicalizationError):
        pass
    return encode_rfc8785_json(entry | {"metadata_text": canonical_column_value(stored)})


def encode_rfc8785_json(value: Any) -> bytes:
    """Return the canonical form of a JSON value (RFC 8785). Raises rfc8785.CanonicalizationError, RecursionError.

    Most values are such that msgspec writes them in this very form, in a thirtieth of the time.
    """
    if has_unambiguous_json_form(value):
        try:
            return msgspec.json.encode(value, order="sorted")
        except UnicodeEncodeError:  # half a character: rfc8785 refuses it in its own words
            pass
    return bytes(rfc8785.dumps(value))


def has_unambiguous_json_form(value: Any) -> bool:
    """Say whether there is one way to write a value: no fractions, no large numbers, only ASCII names."""
    kind = type(value)
    if kind is str or value is None or kind is bool:
        return True
    if kind is int:
        return bool(-MOST_SAFE <= value <= MOST_SAFE)
    if kind is dict:
        return all(
            type(name) is str and name.isascii() and has_unambiguous_json_form(inner_value)
            for name, inner_value in value.items()
        )
    return kind is list and all(map(has_unambiguous_json_form, value))


def columns_of_written_audit_row(row: AuditLog) -> dict[str, Any]:
    """Return what the columns of a row that was just written hold."""
    return {
        str(field.column): field.get_prep_value(getattr(row, field.attname))
        for field in AuditLog._meta.concrete_fields
    }


def compute_audit_leaf_hash_bytes(columns: Mapping[str, Any], *, by_signalbox: bool) -> bytes:
    return leaf_hash(encode_canonical_audit_entry(columns, by_signalbox=by_signalbox))


def build_entry_for_deleted_audit_row(audit_id: int) -> bytes:
    """Return the placeholder for a row that was deleted before its entry was read: nobody knows its content."""
    return bytes(rfc8785.dumps({"v": VERSION, "id": canonical_column_value(audit_id), "lost": True}))


def load_audit_columns_by_id(audit_ids: Iterable[int]) -> dict[int, dict[str, Any]]:
    """Return the columns of those rows that are there, by id, as they are stored."""
    ids = list(audit_ids)
    try:
        return query_audit_columns_by_id(ids, "{}")
    except (DatabaseError, UnicodeDecodeError):  # bytes that are no text, in a row of another program
        return {
            row_id: columns
            for audit_id in ids
            for row_id, columns in query_columns_with_bytes_fallback(audit_id).items()
        }


def query_audit_columns_by_id(audit_ids: list[int], form: str) -> dict[int, dict[str, Any]]:
    if not audit_ids:
        return {}
    columns = ", ".join(form.format(name) for name in COLUMNS)
    marks = ", ".join(["%s"] * len(audit_ids))
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {columns} FROM audit_logs WHERE id IN ({marks})", audit_ids)  # noqa: S608
        return {row[0]: dict(zip(COLUMNS, row, strict=True)) for row in cursor.fetchall()}


def query_columns_with_bytes_fallback(audit_id: int) -> dict[int, dict[str, Any]]:
    try:
        return query_audit_columns_by_id([audit_id], "{}")
    except (DatabaseError, UnicodeDecodeError):
        (columns,) = query_audit_columns_by_id([audit_id], cast_to_bytes_sql("{}")).values()
        return {audit_id: columns | {"id": audit_id}}


def canonical_column_value(value: Any) -> Any:
    """Return a column's value in a form that RFC 8785 knows."""
    if isinstance(value, memoryview | bytes):
        raw = bytes(value)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(raw).decode()}
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > MOST_SAFE:
        return str(value)
    if value is None or isinstance(value, str | int | bool):
        return value
    return str(value)
