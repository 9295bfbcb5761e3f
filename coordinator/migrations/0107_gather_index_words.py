"""PostgreSQL gathers the words of events before it sorts them into the search index: a third of the work of a word
each. The indexing job has it sort them once it has come to an end, so that no search reads what is gathered.
"""

from __future__ import annotations

from django.db import migrations

from coordinator.migrations._sql import step

# An older version may have put the table into parts, each with an index of its own.
_SET = """
DO $$
DECLARE name regclass;
BEGIN
    FOR name IN
        SELECT i.indexrelid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am a ON a.oid = c.relam
        WHERE a.amname = 'gin' AND c.relkind = 'i' AND i.indrelid IN (
            SELECT 'sbx_search_terms'::regclass UNION SELECT 'sbx_search'::regclass
            UNION SELECT relid::regclass FROM pg_partition_tree('sbx_search'::regclass)
        )
    LOOP
        EXECUTE format('ALTER INDEX %s SET (fastupdate = {state})', name);
    END LOOP;
END
$$
"""


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0106_tool_revisions")]

    operations = [
        step(
            [{"sqlite": "", "postgresql": _SET.replace("{state}", "on")}],
            [{"sqlite": "", "postgresql": _SET.replace("{state}", "off")}],
            beside_older="it indexes as before, and autovacuum sorts what it leaves gathered",
        ),
    ]
