"""The list prices that 0039 wrote give way to those of `genai-prices` (coordinator/sessions/prices.py).

A price that somebody has changed since is theirs, and stays.
"""

from __future__ import annotations

from typing import Any

from django.db import migrations


def drop_untouched_seeds(apps: Any, schema_editor: Any) -> None:
    rows = apps.get_model("coordinator", "ModelPrice").objects.using(schema_editor.connection.alias)
    rows.filter(changed_by="system:signalbox").delete()


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0043_search_progress")]

    operations = [migrations.RunPython(drop_untouched_seeds, migrations.RunPython.noop)]
