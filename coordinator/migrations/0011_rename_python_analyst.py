"""The agent "Python Analyst" is called "Python Bridge" from here on.

Databases that began with ClotoCore's first seeds have that agent; ours has none, and renames nothing. A name
that a person chose stays.
"""

from __future__ import annotations

from django.db import migrations

from coordinator.migrations._sql import step


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0010_add_chat_persistence")]

    operations = [
        step(
            [
                "UPDATE agents SET name = 'Python Bridge' WHERE id = 'agent.analyst' AND name = 'Python Analyst'"
            ],
            [
                "UPDATE agents SET name = 'Python Analyst' WHERE id = 'agent.analyst' AND name = 'Python Bridge'"
            ],
        ),
    ]
