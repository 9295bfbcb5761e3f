"""The help pages: one entry for each Markdown file of the documentation that is served at /ui/help/.

A page is looked up by its name in this table, so no part of a URL is ever used as a path.
`python -m dashboard.help.pages` prints the lists of pages for README.md and .docs/README.md.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from django.conf import settings


@dataclass(frozen=True, slots=True)
class HelpPage:
    """A help page.

    `name` is that of its URL and file, `title` its first heading, `summary` for lists of pages.
    """

    name: str
    title: str
    summary: str

    def read_markdown(self) -> str:
        """Return the page's Markdown from the folder in the setting HELP_FOLDER."""
        return (settings.HELP_FOLDER / f"{self.name}.md").read_text(encoding="utf-8")


# By subject, in reading order.
SUBJECTS: dict[str, tuple[HelpPage, ...]] = {
    "Begin": (
        HelpPage("install", "Install", "On one machine, as a service, apart from the agents; the demo."),
        HelpPage(
            "agents", "Agents", "Connect them, what works with each, and what runs without being asked about."
        ),
        HelpPage("sessions", "Sessions", "Watch and search them, and write to a running agent."),
        HelpPage("import", "Import", "Earlier sessions of your agents, and databases of other coordinators."),
    ),
    "Decide": (
        HelpPage("approvals", "Approvals", "Answer requests, one or many; who may decide; long waits."),
        HelpPage("notifications", "Notifications", "By push, chat services, mail and webhooks; escalation."),
        HelpPage("rules", "Rules and the brake", "Which calls wait, run or are denied; stopping everything."),
        HelpPage(
            "reading-calls",
            "How a rule reads a call",
            "Programs, paths and hosts in rules, and what no rule sees.",
        ),
        HelpPage("usage", "Usage and budgets", "Tokens, costs and calls, and limits on them."),
        HelpPage("audit", "Audit log", "Who decided what, with proofs that a stranger can verify."),
    ),
    "Connect": (
        HelpPage(
            "hooks", "Hooks", "What happens while Signalbox is away, and in projects that you do not trust."
        ),
        HelpPage(
            "telemetry", "Telemetry", "Sessions of agents that are built with a library, by OpenTelemetry."
        ),
        HelpPage("mcp", "MCP servers", "Register servers, grant their tools, keep their credentials."),
        HelpPage("runner", "Runner", "Start and drive agents from the browser."),
        HelpPage("sdk", "SDKs", "Approve tool calls of agents that you build, in ten lines."),
        HelpPage("api", "API and keys", "Scopes of keys, and examples with curl."),
    ),
    "Operate": (
        HelpPage("settings", "Settings", "Every environment variable with its default."),
        HelpPage("sign-in", "People and sign-in", "Roles, and single sign-on with OpenID Connect."),
        HelpPage(
            "deploy", "Several machines", "PostgreSQL, proxies, containers, files in S3, moving from SQLite."
        ),
        HelpPage("operate", "Operate", "Checks, metrics, logs, retention, backups, very many events."),
        HelpPage("upgrade", "Upgrade", "Restart and upgrade without refusing anybody; going back."),
        HelpPage("changelog", "Changelog", "What changed, and what to do when you upgrade."),
        HelpPage("security", "Security", "What is promised against whom, and what is not."),
    ),
}
PAGES: dict[str, HelpPage] = {page.name: page for pages in SUBJECTS.values() for page in pages}
# The pictures on the pages, by the name of their URL and file.
PICTURES = ("session-light", "session-dark", "approvals-phone-light", "approvals-phone-dark")


def read_picture(name: str) -> bytes:
    """Return the content of a picture in PICTURES, from the folder in the setting HELP_FOLDER."""
    return bytes((settings.HELP_FOLDER / "pictures" / f"{name}.webp").read_bytes())


def readme_help_list_markdown() -> str:
    """Return the list of pages for README.md."""
    return "\n".join(
        f"- **{subject}:** " + ", ".join(f"[{page.title}](.docs/{page.name}.md)" for page in pages)
        for subject, pages in SUBJECTS.items()
    )


def docs_readme_help_list_markdown() -> str:
    """Return the list of pages for .docs/README.md, with their summaries."""
    return "\n\n".join(
        f"## {subject}\n\n" + "\n".join(f"- [{page.title}]({page.name}.md): {page.summary}" for page in pages)
        for subject, pages in SUBJECTS.items()
    )


if __name__ == "__main__":
    sys.stdout.write(
        f"README.md:\n{readme_help_list_markdown()}\n\n.docs/README.md:\n{docs_readme_help_list_markdown()}\n"
    )
