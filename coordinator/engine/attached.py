"""What others hang on PostgreSQL's tables: rights, which new tables get too, and the rest, which cannot follow.

Everybody knows a table by its name, PostgreSQL by its number: who puts another table under the name (partition_changes)
leaves behind whatever was not made anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from django.db.backends.utils import CursorWrapper

OURS = "sbx_"  # what the names of our triggers begin with
RIGHTS = """
SELECT owned.grantee, held.privilege_type, held.is_grantable, held.column_name FROM (
    SELECT acl.grantee, acl.privilege_type, acl.is_grantable, NULL AS column_name
    FROM pg_class c, aclexplode(c.relacl) acl WHERE c.oid = to_regclass(%s)
    UNION ALL
    SELECT acl.grantee, acl.privilege_type, acl.is_grantable, quote_ident(a.attname)
    FROM pg_attribute a, aclexplode(a.attacl) acl WHERE a.attrelid = to_regclass(%s) AND NOT a.attisdropped
) held JOIN LATERAL (
    SELECT CASE held.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(held.grantee)) END AS grantee
) owned ON true
WHERE held.grantee <> (SELECT relowner FROM pg_class WHERE oid = to_regclass(%s))
ORDER BY owned.grantee, held.column_name NULLS FIRST, held.privilege_type
"""
REST = """
WITH ours AS (SELECT to_regclass(name)::oid AS oid, name FROM unnest(%s::text[]) AS name)
SELECT DISTINCT CASE v.relkind WHEN 'm' THEN 'materialized view ' ELSE 'view ' END || v.oid::regclass AS what, ours.name
FROM ours JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = ours.oid
    AND d.classid = 'pg_rewrite'::regclass
    JOIN pg_rewrite r ON r.oid = d.objid JOIN pg_class v ON v.oid = r.ev_class AND v.oid <> ours.oid
UNION
SELECT 'rule ' || quote_ident(r.rulename), ours.name FROM ours JOIN pg_rewrite r ON r.ev_class = ours.oid
UNION
SELECT 'trigger ' || quote_ident(t.tgname), ours.name FROM ours JOIN pg_trigger t ON t.tgrelid = ours.oid
    WHERE NOT t.tgisinternal AND t.tgparentid = 0 AND NOT starts_with(t.tgname, %s)
UNION
SELECT 'policy ' || quote_ident(p.polname), ours.name FROM ours JOIN pg_policy p ON p.polrelid = ours.oid
UNION
SELECT 'row security', ours.name FROM ours JOIN pg_class c ON c.oid = ours.oid AND c.relrowsecurity
UNION
SELECT 'foreign key ' || quote_ident(k.conname) || ' of ' || k.conrelid::regclass, ours.name
    FROM ours JOIN pg_constraint k ON k.confrelid = ours.oid AND k.contype = 'f'
    WHERE k.conrelid NOT IN (SELECT oid FROM ours WHERE oid IS NOT NULL)
UNION
SELECT 'publication ' || quote_ident(p.pubname), ours.name
    FROM ours JOIN pg_class c ON c.oid = ours.oid
    JOIN pg_publication_tables t ON t.schemaname = c.relnamespace::regnamespace::text AND t.tablename = c.relname
    JOIN pg_publication p ON p.pubname = t.pubname
    WHERE NOT (p.puballtables AND p.pubviaroot)
ORDER BY 2, 1
"""


class TableRight(NamedTuple):
    """One right of somebody other than the owner, on a table or on one `column`; names are quoted."""

    grantee: str
    privilege: str
    may_pass_on: bool
    column: str | None


def list_table_rights(cursor: CursorWrapper, name: str) -> list[TableRight]:
    """Return which rights others have on a table or a sequence."""
    cursor.execute(RIGHTS, [name, name, name])
    return [TableRight(*row) for row in cursor.fetchall()]


def grant_exact_rights(
    cursor: CursorWrapper, name: str, rights: Sequence[TableRight], *, kind: str = "TABLE"
) -> None:
    """Have exactly these rights stand on a table or a SEQUENCE that is new, whatever is given by default."""
    for grantee in sorted({right.grantee for right in list_table_rights(cursor, name)}):
        cursor.execute(f"REVOKE ALL ON {kind} {name} FROM {grantee}")
    for right in rights:
        column = f" ({right.column})" if right.column else ""
        passing = " WITH GRANT OPTION" if right.may_pass_on else ""
        cursor.execute(f"GRANT {right.privilege}{column} ON {kind} {name} TO {right.grantee}{passing}")


def list_attached_objects(cursor: CursorWrapper, tables: Sequence[str]) -> list[str]:
    """Name what hangs on the tables beside rights and our own triggers, such as `view reports.days (events)`."""
    cursor.execute(REST, [list(tables), OURS])
    return [f"{what} ({table})" for what, table in cursor.fetchall()]
