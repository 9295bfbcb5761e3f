"""Model fields for columns as the schema documents (tests/data/schema) type them, with Python values.

Times are aware UTC datetimes in Python, whatever the column holds: ISO-8601 text, milliseconds, seconds, or
SQL's own DATETIME. JSON columns are text holding JSON, decoded in Python. Reading never fails: what cannot be
read comes back as `UnreadableText`, the column's own text, which templates show and saving puts back unchanged.
Writing is strict: a naive datetime, or a text that names no instant, is a ValueError.

Comparing: rows of other programs hold instants in other forms than ours, so `IsoTextField` never compares
texts. A lookup with a datetime becomes an indexable text bound (the UTC date, a day to either side, because no
offset reaches further) and, on the rows within, an exact comparison in microseconds (coordinator.lib.instants).
An unreadable row satisfies no comparison. Two transforms go further:

- `created_at__instant` is the microseconds: `order_by("created_at__instant")` is exact for rows of any form,
  while `order_by("created_at")` uses the index and is exact for every row that Signalbox wrote.
- `created_at__text` is the unparsed column, for keyset pages that follow the text order.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from typing import Any

from django.core.exceptions import EmptyResultSet, ValidationError
from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import lookups
from django.db.models.expressions import Expression
from django.db.models.sql.compiler import SQLCompiler
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from coordinator.engine import is_sqlite
from coordinator.engine.values import instant_microseconds_sql
from coordinator.lib import instants
from coordinator.lib.unfit_values import UnreadableText

SqlAndParams = tuple[str, Any]
DAY = timedelta(days=1)
AFTER_EVERY_DATE = "9999-99"  # as text


def require_aware_utc(value: Any) -> datetime:
    """Return an aware UTC datetime from a datetime or a readable text; ValueError for anything else."""
    if isinstance(value, str):
        instant = instants.parse_instant_or_none(value) or parse_datetime(value)
        if instant is None:
            raise ValueError(f"{value!r} names no instant.")
        value = instant
    if not isinstance(value, datetime):
        raise ValueError(f"{value!r} is no datetime.")
    if timezone.is_naive(value):
        raise ValueError(f"An instant needs a time zone: {value!r}.")
    return value.astimezone(UTC)


class TimeField(models.DateTimeField):  # type: ignore[type-arg]
    """What the four forms of time have in common: a datetime in Python, a form's own value in the column."""

    column_type = "text"

    def get_internal_type(self) -> str:
        """Name the column's own type, so that no backend treats the value as its kind of datetime."""
        return {"text": "TextField", "bigint": "BigIntegerField"}[self.column_type]

    def encode_instant(self, instant: datetime) -> Any:
        """Return what the column holds for an aware UTC datetime."""
        raise NotImplementedError

    def decode_instant(self, value: Any) -> datetime | None:
        """Return the instant of a column's value, or None where it holds none."""
        raise NotImplementedError

    def from_db_value(self, value: Any, expression: Expression, connection: BaseDatabaseWrapper) -> Any:
        """Return the instant, or the column's own text where it holds none."""
        if value is None:
            return None
        instant = self.decode_instant(value)
        return UnreadableText(value) if instant is None else instant

    def to_python(self, value: Any) -> Any:
        """Return an aware datetime from what a form or a fixture gives."""
        if value is None or isinstance(value, UnreadableText):
            return value
        if isinstance(value, datetime) and timezone.is_naive(value):
            value = timezone.make_aware(value)
        try:
            return require_aware_utc(value)
        except ValueError as problem:
            raise ValidationError(str(problem), code="invalid") from None

    def get_prep_value(self, value: Any) -> Any:
        """Return the column's form; what was unreadable goes back as it came."""
        if value is None or isinstance(value, UnreadableText) or hasattr(value, "resolve_expression"):
            return value
        return self.encode_instant(require_aware_utc(value))

    def get_db_prep_value(self, value: Any, connection: BaseDatabaseWrapper, prepared: bool = False) -> Any:
        """Return the column's form as it is: no backend adapts it further."""
        return value if prepared else self.get_prep_value(value)

    def get_transform(self, lookup_name: str) -> Any:
        """Offer our own transforms only: the inherited `__date`, `__year` and so on would compare texts."""
        transform = super().get_transform(lookup_name)
        return transform if transform in (InstantTransform, TextTransform) else None

    def value_to_string(self, obj: models.Model) -> str:
        value = self.value_from_object(obj)
        return instants.format_canonical_instant(value) if isinstance(value, datetime) else str(value or "")


class IsoTextField(TimeField):
    """ISO-8601 text. Written as `2026-02-23T12:00:00.000000+00:00`, read in every form of coordinator.lib.instants."""

    description = "Instant as ISO-8601 text"

    def encode_instant(self, instant: datetime) -> str:
        return instants.format_canonical_instant(instant)

    def decode_instant(self, value: Any) -> datetime | None:
        """Return the instant that the text names."""
        return instants.parse_instant_or_none(value) if isinstance(value, str) else None


class MsField(TimeField):
    """Milliseconds since 1970 as an integer; fractions are cut. A plain int is taken as milliseconds."""

    description = "Instant as milliseconds"
    column_type = "bigint"
    unit_us = 1_000

    def encode_instant(self, instant: datetime) -> int:
        """Return whole units since 1970."""
        return instants.instant_to_microseconds(instant) // self.unit_us

    def decode_instant(self, value: Any) -> datetime | None:
        """Return the instant so many units after 1970; another program's number may have a fraction."""
        try:
            # A fraction is rounded up: then nothing comes after its own instant, and pages go on.
            units = value if isinstance(value, int) else math.ceil(float(value))
            return instants.instant_from_microseconds(units * self.unit_us)
        except (OverflowError, ValueError):
            return None

    def get_prep_value(self, value: Any) -> Any:
        """Return the units; an int is units already."""
        return value if isinstance(value, int) else super().get_prep_value(value)

    def to_python(self, value: Any) -> Any:
        """Return an aware datetime; an int is units."""
        if isinstance(value, int):
            instant = self.decode_instant(value)
            return UnreadableText(value) if instant is None else instant
        return super().to_python(value)


class SecondsField(MsField):
    """Seconds since 1970 as an integer (`mcp_servers.created_at`); fractions are cut."""

    description = "Instant as seconds"
    unit_us = 1_000_000


class SqlDateTimeField(TimeField):
    """SQL's DATETIME with DEFAULT CURRENT_TIMESTAMP: `YYYY-MM-DD HH:MM:SS` on SQLite, timestamptz on PostgreSQL."""

    description = "Instant as DATETIME"

    def get_internal_type(self) -> str:
        """Name a type of our own, so that SQLite's backend does not read, and fail on, other programs' rows."""
        return "SqlDateTimeField"

    def db_type(self, connection: BaseDatabaseWrapper) -> str:
        """Return the document's word, or PostgreSQL's for it."""
        return "DATETIME" if is_sqlite(connection) else "timestamptz"

    def encode_instant(self, instant: datetime) -> datetime:
        """Leave the datetime to the database driver, see get_db_prep_value."""
        return instant

    def decode_instant(self, value: Any) -> datetime | None:
        """Return the instant of the driver's datetime or of SQLite's text."""
        if isinstance(value, datetime):
            return value.replace(tzinfo=UTC) if timezone.is_naive(value) else value.astimezone(UTC)
        return instants.parse_instant_or_none(value) if isinstance(value, str) else None

    def select_format(self, compiler: SQLCompiler, sql: str, params: Any) -> SqlAndParams:
        """Read SQLite's text: of a bare DATETIME column its driver makes a datetime, or nothing of odd text."""
        if is_sqlite(compiler.connection):
            return f"CAST({sql} AS TEXT)", params
        return sql, params

    def get_db_prep_value(self, value: Any, connection: BaseDatabaseWrapper, prepared: bool = False) -> Any:
        """Return a datetime on PostgreSQL; on SQLite the text that CURRENT_TIMESTAMP writes, µs added if any."""
        value = value if prepared else self.get_prep_value(value)
        if isinstance(value, datetime) and is_sqlite(connection):
            return str(value.astimezone(UTC).replace(tzinfo=None))
        return value


class JsonTextField(models.TextField):  # type: ignore[type-arg]
    """Text holding JSON, decoded in Python. What is no JSON is an `UnreadableText`; every other str is a JSON string.

    `contains` and its kin search the text itself; `exact` compares with the compact form that we write.
    """

    description = "JSON as text"
    _pyi_private_set_type: Any
    _pyi_private_get_type: Any

    def from_db_value(self, value: Any, expression: Expression, connection: BaseDatabaseWrapper) -> Any:
        """Return the decoded JSON, or the column's own text."""
        return None if value is None else decode_stored_json(value)

    def to_python(self, value: Any) -> Any:
        """Leave decoded values as they are: forms decode their own text."""
        return value

    def get_prep_value(self, value: Any) -> Any:
        """Return compact JSON; what was unreadable goes back as it came."""
        if value is None or isinstance(value, UnreadableText) or hasattr(value, "resolve_expression"):
            return value
        return dump_compact_json(value)

    def value_to_string(self, obj: models.Model) -> str:
        return str(self.get_prep_value(self.value_from_object(obj)) or "")


def decode_stored_json(text: str) -> Any:
    """Return the value of stored JSON, or the text itself where it is none. A lone surrogate is kept as its escape."""
    try:
        decoded = _DECODER.decode(text)
        return escape_surrogates_in_json_value(decoded) if _SURROGATE.search(text) else decoded
    except (ValueError, TypeError, RecursionError):
        return UnreadableText(text)


_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def escape_surrogates_in_json_value(value: Any) -> Any:
    """Return a JSON value that UTF-8 has a form for: no answer and no page could hold the other."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {
            escape_surrogates_in_json_value(key): escape_surrogates_in_json_value(inner_value)
            for key, inner_value in value.items()
        }
    return [escape_surrogates_in_json_value(one) for one in value] if isinstance(value, list) else value


def parse_finite_float(digits: str) -> float:
    """Return a JSON number. Raises ValueError for infinity and NaN, which no answer of ours can hold."""
    if not math.isfinite(number := float(digits)):
        raise ValueError(f"{digits} is no number of JSON.")
    return number


_DECODER = json.JSONDecoder(parse_constant=parse_finite_float, parse_float=parse_finite_float)


def dump_compact_json(value: Any) -> str:
    """Return compact JSON that any database can store: a lone surrogate, which UTF-8 has no form for, is escaped."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text


class InstantTransform(models.Transform):
    """`__instant`: the microseconds since 1970 that an ISO text names, NULL where it names none."""

    lookup_name = "instant"
    output_field = models.BigIntegerField()

    def as_sql(  # type: ignore[override]
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **kwargs: Any
    ) -> SqlAndParams:
        """Return SQL by the grammar of coordinator.lib.instants."""
        column, params = compiler.compile(self.lhs)
        # The column is named many times; a parameter inside it would have to be repeated in step.
        if params and is_sqlite(connection):
            raise NotImplementedError(
                "An instant is taken of a column, not of an expression with parameters."
            )
        return instant_microseconds_sql(column, connection), params


class TextTransform(models.Transform):
    """`__text`: the column's text, neither parsed nor decoded."""

    lookup_name = "text"
    output_field = models.TextField()

    def as_sql(  # type: ignore[override]
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **kwargs: Any
    ) -> SqlAndParams:
        return compiler.compile(self.lhs)


class InstantLookup(lookups.Lookup):
    """One comparison of ISO texts by the instants they name, behind text bounds that an index can serve."""

    operator = "="
    bounds: tuple[str, ...] = (">=", "<")
    prepare_rhs = False

    def get_prep_lookup(self) -> Any:
        """Return the other side: an expression, odd text to be found unchanged, or an aware datetime."""
        # Django turns `exact` None into IS NULL after this.
        if (
            self.rhs is None
            or hasattr(self.rhs, "resolve_expression")
            or isinstance(self.rhs, UnreadableText)
        ):
            return self.rhs
        return require_aware_utc(self.rhs)

    def as_sql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper) -> SqlAndParams:
        """Return bounds on the text and the exact comparison; for an expression, the comparison alone."""
        column, params = compiler.compile(self.lhs)
        exact, exact_params = compiler.compile(InstantTransform(self.lhs))
        if isinstance(self.rhs, UnreadableText):
            return f"{column} {self.operator} %s", [*params, str(self.rhs)]
        if not isinstance(self.rhs, datetime):
            other, other_params = compiler.compile(InstantTransform(self.rhs))
            return f"{exact} {self.operator} {other}", [*exact_params, *other_params]
        bounds, bound_params = self.build_text_bounds_sql(column, list(params), self.rhs)
        return (
            f"({bounds} AND {exact} {self.operator} %s)",
            [*bound_params, *exact_params, instants.instant_to_microseconds(self.rhs)],
        )

    def build_text_bounds_sql(
        self, column: str, params: list[Any], instant: datetime
    ) -> tuple[str, list[Any]]:
        """Return what every text of an instant in question satisfies, whatever its offset."""
        day = instant.date()
        edges = {
            ">=": (day - DAY).isoformat() if day > date.min else "",
            "<": (day + 2 * DAY).isoformat() if day < date.max - DAY else AFTER_EVERY_DATE,
        }
        sql = " AND ".join(f"{column} {sign} %s" for sign in self.bounds)
        return sql, [part for sign in self.bounds for part in (*params, edges[sign])]


@IsoTextField.register_lookup
class InstantExact(InstantLookup):
    lookup_name = "exact"


@IsoTextField.register_lookup
class InstantAfter(InstantLookup):
    lookup_name = "gt"
    operator = ">"
    bounds = (">=",)


@IsoTextField.register_lookup
class InstantAtOrAfter(InstantLookup):
    lookup_name = "gte"
    operator = ">="
    bounds = (">=",)


@IsoTextField.register_lookup
class InstantBefore(InstantLookup):
    lookup_name = "lt"
    operator = "<"
    bounds = ("<",)


@IsoTextField.register_lookup
class InstantAtOrBefore(InstantLookup):
    lookup_name = "lte"
    operator = "<="
    bounds = ("<",)


@IsoTextField.register_lookup
class InstantIn(lookups.Lookup):
    """One of several instants, in whatever form."""

    lookup_name = "in"
    prepare_rhs = False

    def get_prep_lookup(self) -> list[datetime]:
        """Return aware datetimes; a subquery of texts would have to be read first."""
        if not isinstance(self.rhs, Iterable) or hasattr(self.rhs, "resolve_expression"):
            raise ValueError("`in` takes a list of datetimes here.")
        return [require_aware_utc(value) for value in self.rhs]

    def as_sql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper) -> SqlAndParams:
        """Return a comparison for each, so that each is served by its text bounds."""
        if not self.rhs:
            raise EmptyResultSet
        parts = [compiler.compile(InstantExact(self.lhs, value)) for value in self.rhs]
        return f"({' OR '.join(sql for sql, _ in parts)})", [p for _, params in parts for p in params]


@IsoTextField.register_lookup
class InstantRange(lookups.Lookup):
    """From the first instant until the second, both included."""

    lookup_name = "range"
    prepare_rhs = False

    def as_sql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper) -> SqlAndParams:
        first, last = self.rhs
        low, low_params = compiler.compile(InstantAtOrAfter(self.lhs, first))
        high, high_params = compiler.compile(InstantAtOrBefore(self.lhs, last))
        return f"({low} AND {high})", [*low_params, *high_params]


class RoundUpMixin:
    """Rounds the datetime up to the column's unit: `>= 12:00:00.0005` leaves 12:00:00.000 out."""

    rhs: Any
    lhs: Any

    def get_prep_lookup(self) -> Any:
        """Return the least unit that is not before the datetime."""
        prepared = super().get_prep_lookup()  # type: ignore[misc]
        if not isinstance(self.rhs, datetime):
            return prepared
        field = self.lhs.output_field
        return -(-instants.instant_to_microseconds(self.rhs) // field.unit_us)


@MsField.register_lookup
class UnitAtOrAfter(RoundUpMixin, lookups.GreaterThanOrEqual):
    """The same or a later instant."""


@MsField.register_lookup
class UnitEarlier(RoundUpMixin, lookups.LessThan):
    """An earlier instant."""


IsoTextField.register_lookup(InstantTransform)
IsoTextField.register_lookup(TextTransform)
JsonTextField.register_lookup(TextTransform)
