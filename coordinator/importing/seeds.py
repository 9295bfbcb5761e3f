"""Rows that a new installation begins with, as our migrations leave them. Where nobody touched them, an owner's
rows take their place. tests/importing/test_again.py compares them with a new database.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Row = dict[str, Any]
# Of each table, by key: the columns that a person could have changed.
SEEDS: Mapping[str, Mapping[tuple[str, ...], Row]] = {
    "agents": {
        ("agent.cloto_default",): {
            "name": "Cloto Assistant",
            "description": "The agent that every installation starts with.",
            "default_engine_id": "mind.cerebras",
            "status": "online",
            "metadata": "{}",
            "required_capabilities": '["Reasoning", "Memory"]',
            "enabled": 1,
            "power_password_hash": None,
        },
    },
    "plugin_settings": {
        ("memory.ks22",): {"is_active": 1, "allowed_permissions": '["MemoryRead","MemoryWrite"]'},
        ("mind.deepseek",): {"is_active": 1, "allowed_permissions": '["NetworkAccess"]'},
        ("mind.cerebras",): {"is_active": 1, "allowed_permissions": '["NetworkAccess"]'},
    },
    "plugin_configs": {
        ("mind.deepseek", "model_id"): {"config_value": "deepseek-chat"},
        ("mind.cerebras", "model_id"): {"config_value": "gpt-oss-120b"},
    },
}


def is_unchanged_seed_row(table: str, key: tuple[Any, ...], row: Row) -> bool:
    """Say whether a row (values as `values.to_compare` gives them) is as the migrations made it."""
    seed = SEEDS.get(table, {}).get(key)
    return seed is not None and all(row.get(name) == value for name, value in seed.items() if name in row)
