"""The help pages' commands for operators are the commands there are, with the options there are."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from django.core.management import load_command_class

from coordinator.edge.monitoring.metrics import GAUGES
from coordinator.lib import process_metrics as meters

FOLDER = Path(__file__).resolve().parents[2] / ".docs"
SECTIONS = "".join((FOLDER / f"{name}.md").read_text() for name in ("operate", "audit", "upgrade"))
COMMANDS = re.findall(r"^signalbox (?:manage )?(.+)$", SECTIONS, re.M)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_one_that_can_be_given(command: str) -> None:
    name, *words = shlex.split(command)
    parser = load_command_class("coordinator", name).create_parser("manage.py", name)
    assert parser.parse_args(words)


def test_the_sections_have_their_commands() -> None:
    assert {command.split()[0] for command in COMMANDS} == {
        "audit",
        "doctor",
        "prune",
        "shrink",
        "check_migrations",
        "restart",
        "backup",
        "restore",
    }


def test_every_figure_that_is_named_exists() -> None:
    known = {one.name for one in (*meters.COUNTERS, *meters.HISTOGRAMS)} | set(GAUGES)
    known |= {f"{one.name}_total" for one in meters.COUNTERS} | {"signalbox_approvals_pending"}
    known |= {"signalbox_audit_entries", "signalbox_audit_sealed_entries"}
    named = {name.removesuffix("_bucket") for name in re.findall(r"[`(](signalbox_\w+)[`[]", SECTIONS)}
    assert len(named) == 6
    assert named <= known
