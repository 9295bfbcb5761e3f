"""PostgreSQL as Django drives it, and two things more: fail-over, and statements that are planned once.

A database that only reads is taken for one that is away.

During a fail-over a connection may stand to a server that has become a standby, or was switched to read-only until
another takes over. To psycopg a refused write is then an `InternalError`, as if the program were wrong; here it is an
`OperationalError`, which every door answers with 503 and every job tries again. The connection is not used for
another request: the next one is opened anew, to the server that writes where DATABASE_URL names several hosts and
`target_session_attrs=read-write`.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any

from django.db import OperationalError
from django.db.backends.postgresql import base
from django.db.backends.postgresql.operations import DatabaseOperations
from django.db.backends.utils import CursorWrapper
from django.db.utils import DatabaseErrorWrapper
from django.utils.functional import cached_property
from psycopg import errors


class ReadOnlyErrorWrapper(DatabaseErrorWrapper):
    """Django's, but for the refusal of a write."""

    wrapper: DatabaseWrapper

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if isinstance(exc_value, errors.ReadOnlySqlTransaction):
            self.wrapper.only_reads = True
            self.wrapper.errors_occurred = True
            raise OperationalError(*exc_value.args).with_traceback(traceback) from exc_value
        super().__exit__(exc_type, exc_value, traceback)


class PostgresDatabaseOperations(DatabaseOperations):
    """Django's, which also tell of a statement whose plan is kept: psycopg remembers only what it sent whole."""

    def last_executed_query(self, cursor: CursorWrapper, sql: str, params: Any) -> str:
        told: str | None = super().last_executed_query(cursor, sql, params)
        return told or sql


class DatabaseWrapper(base.DatabaseWrapper):
    """Django's, which also knows whether its server has refused to write, and keeps plans of statements."""

    ops_class = PostgresDatabaseOperations
    only_reads = False
    _is_session: bool | None = (
        None  # whether the connection is one session of the server's; None: not asked yet
    )

    @cached_property
    def wrap_database_errors(self) -> DatabaseErrorWrapper:
        return ReadOnlyErrorWrapper(self)

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        self.only_reads = False
        self._is_session = None
        return super().get_new_connection(conn_params)

    def planning_cursor(self) -> CursorWrapper:
        """Return a cursor whose statements the server plans once for this connection, each by its text.

        A pooler in transaction mode hands out another session each time, and plans are a session's: an ordinary cursor.
        """
        self.ensure_connection()
        if not self.detect_plan_support():
            return self.cursor()
        with self.wrap_database_errors:
            cursor = base.ServerBindingCursor(self.connection)  # type: ignore[call-arg] # the stubs do not know it
            wrapped: CursorWrapper = self._prepare_cursor(cursor)  # type: ignore[attr-defined] # … nor this
            return wrapped

    def detect_plan_support(self) -> bool:
        if self._is_session is None:
            with self.cursor() as cursor:
                cursor.execute("SELECT pg_backend_pid()")
                (session,) = cursor.fetchone()
            # A pooler makes up the process id that its client is told at first.
            self._is_session = session == self.connection.info.backend_pid
            if self._is_session:
                self.connection.prepare_threshold = 0
        return self._is_session

    def close_if_unusable_or_obsolete(self) -> None:
        """Close it where it is not to be used on; also where whoever uses it next spares Django's check."""
        if self.only_reads and not self.in_atomic_block:
            self.close()
        super().close_if_unusable_or_obsolete()

    def is_usable(self) -> bool:
        """Say whether the connection may be used on; Django asks after an error and before a request."""
        return not self.only_reads and super().is_usable()
