"""`manage.py import_claude_code [PATH]`: the former name of `import_transcripts claude-code [PATH]`."""

from __future__ import annotations

from argparse import ArgumentParser

from coordinator.dialects.claude_code import SOURCE
from coordinator.management.commands import import_transcripts


class Command(import_transcripts.Command):
    """Imports Claude Code's own transcripts as sessions."""

    help = __doc__

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.set_defaults(program=SOURCE)
        self.add_source_arguments(parser)
