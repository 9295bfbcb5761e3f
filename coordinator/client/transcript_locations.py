"""Locations of agents' transcripts, and the files themselves."""

from __future__ import annotations

import os
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


class AgentTranscriptLocation:
    """One agent's: `folders` of the home that the variable `home_in` names, else of `home` in the person's own.

    `is_transcript` judges a path with slashes, from that home on.
    """

    __slots__ = ("folders", "home", "home_in", "is_transcript", "name")

    def __init__(self, name: str, home_in: str, home: str, folders: tuple[str, ...], pattern: str) -> None:
        self.name, self.home_in, self.home, self.folders = name, home_in, home, folders
        self.is_transcript: Callable[[str], object] = re.compile(pattern).search

    def agent_home_folder(self, environment: Mapping[str, str]) -> str:
        """Return the folder in which the agent's folders are."""
        return environment.get(self.home_in) or os.path.join(os.path.expanduser("~"), self.home)

    def iterate_files(self, environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        """Yield each transcript's path from the home on, and its full path."""
        home = self.agent_home_folder(environment)
        for folder in self.folders:
            for base, folders, files in os.walk(os.path.join(home, folder)):
                folders.sort()
                for file in sorted(files):
                    path = os.path.join(base, file)
                    name = os.path.relpath(path, home).replace(os.sep, "/")
                    if self.is_transcript(name):
                        yield name, path


# As the formats of coordinator/dialects/*_transcripts.py say; a test compares them. OpenCode's and Kilo's databases are
# copied before they are sent. OpenCode's sessions in JSON files, as old versions wrote them, are not sent.
TRANSCRIPT_PLACES = {
    place.name: place
    for place in (
        AgentTranscriptLocation("claude-code", "CLAUDE_CONFIG_DIR", ".claude", ("projects",), r"\.jsonl$"),
        AgentTranscriptLocation(
            "codex", "CODEX_HOME", ".codex", ("sessions", "archived_sessions"), r"/rollout-[^/]+\.jsonl$"
        ),
        AgentTranscriptLocation(
            "gemini",
            "GEMINI_CLI_HOME",
            "",
            (".gemini/tmp",),
            r"/session-[^/]*\.jsonl?$|/chats/[^/]+/[^/]+\.jsonl$",
        ),
        AgentTranscriptLocation(
            "opencode", "XDG_DATA_HOME", ".local/share", ("opencode",), r"/opencode[^/]*\.db$"
        ),
        AgentTranscriptLocation(
            "copilot", "COPILOT_HOME", ".copilot", ("session-state",), r"session-state/[^/]+/events\.jsonl$"
        ),
        AgentTranscriptLocation("kilo", "XDG_DATA_HOME", ".local/share", ("kilo",), r"/kilo[^/]*\.db$"),
        AgentTranscriptLocation(
            "qwen-code",
            "",
            ".qwen",
            ("projects",),
            r"/chats/[^/]+\.jsonl$|/subagents/[^/]+/agent-[^/]*\.jsonl$",
        ),
    )
}
