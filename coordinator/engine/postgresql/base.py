"""PostgreSQL as Django drives it, but for fail-over: a database that only reads is taken for one that is away.

During a fail-over a connection may be to a server that has become a standby, or was switched to read-only until
another takes over. To psycopg a refused write is then an `InternalError`, as if the program were wrong; here it is an
`OperationalError`, which every endpoint answers with 503 and every job tries again. The connection is not used for
another request: the next one is newly opened, to the server that writes where DATABASE_URL names several hosts and
`target_session_attrs=read-write`.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any

from django.db import OperationalError
from django.db.backends.postgresql import base
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


class DatabaseWrapper(base.DatabaseWrapper):
    """Django's, which also knows whether its server has refused to write."""

    only_reads = False

    @cached_property
    def wrap_database_errors(self) -> DatabaseErrorWrapper:
        return ReadOnlyErrorWrapper(self)

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        self.only_reads = False
        return super().get_new_connection(conn_params)

    def is_usable(self) -> bool:
        """Say whether the connection may be used on; Django asks after an error and before a request."""
        return not self.only_reads and super().is_usable()
