"""Exports of lists as files, streamed row by row, so that large ones need little memory."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from django.http import StreamingHttpResponse

# A spreadsheet evaluates a cell that begins with one of these as a formula; a leading quote prevents that.
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def build_csv_response(
    name: str, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]
) -> StreamingHttpResponse:
    """Return a CSV file of `columns` as a streamed response. Values that are not text are written as JSON."""
    return build_download_response(f"{name}.csv", "text/csv; charset=utf-8", iterate_csv_lines(columns, rows))


def build_ndjson_response(name: str, rows: Iterable[Mapping[str, Any]]) -> StreamingHttpResponse:
    lines = (json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in rows)
    return build_download_response(f"{name}.ndjson", "application/x-ndjson", lines)


def build_download_response(name: str, content_type: str, lines: Iterable[str]) -> StreamingHttpResponse:
    response = StreamingHttpResponse(lines, content_type=content_type)
    response.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


def iterate_csv_lines(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    line = io.StringIO()
    writer = csv.writer(line)
    writer.writerow(columns)
    for row in rows:
        yield read_and_clear_csv_buffer(line)
        writer.writerow([format_csv_cell_without_formula(row.get(column)) for column in columns])
    yield read_and_clear_csv_buffer(line)


def read_and_clear_csv_buffer(line: io.StringIO) -> str:
    text = line.getvalue()
    line.seek(0)
    line.truncate()
    return text


def format_csv_cell_without_formula(value: Any) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return f"'{text}" if isinstance(value, str) and text.startswith(FORMULA_STARTS) else text
