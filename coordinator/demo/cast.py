"""Who is in the demo: teams and their agents, the machines they run on, MCP servers, plugins, people."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Team:
    """A group of agents that share a repository and a machine."""

    name: str
    repository: str
    project_dir: str
    hostname: str
    modules: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Trade:
    """What an agent of any team is for; with a team it makes one agent, such as `checkout-reviewer`."""

    name: str
    title: str
    description: str
    capabilities: tuple[str, ...]
    tasks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DemoMcpServer:
    """An MCP server that the demo's agents may or may not call."""

    name: str
    command: str
    args: tuple[str, ...]
    description: str
    default_policy: str
    tools: tuple[str, ...]


TEAMS = (
    Team(
        "checkout",
        "acme/checkout",
        "/srv/work/checkout",
        "build-01",
        ("cart", "payments", "coupons", "refunds"),
    ),
    Team(
        "search", "acme/search", "/srv/work/search", "build-02", ("ranking", "indexer", "synonyms", "facets")
    ),
    Team(
        "mobile",
        "acme/mobile-app",
        "/Users/ci/mobile-app",
        "mac-mini-3",
        ("login", "push", "offline", "camera"),
    ),
    Team(
        "platform",
        "acme/platform",
        "/srv/work/platform",
        "build-01",
        ("gateway", "queue", "audit", "billing"),
    ),
    Team(
        "data",
        "acme/warehouse",
        "/srv/work/warehouse",
        "gpu-lab",
        ("orders_daily", "churn", "sessions", "costs"),
    ),
)

TRADES = (
    Trade(
        "reviewer",
        "Reviewer",
        "Reads pull requests and says what would break.",
        ("Reasoning",),
        ("generate_review_steps",),
    ),
    Trade(
        "fixer",
        "Fixer",
        "Turns a failing test or a bug report into a small change.",
        ("Reasoning", "Memory"),
        ("generate_test_fix_steps", "generate_bug_fix_steps"),
    ),
    Trade(
        "tester",
        "Tester",
        "Writes the tests that nobody wrote.",
        ("Reasoning",),
        ("generate_test_writing_steps",),
    ),
    Trade(
        "librarian",
        "Librarian",
        "Keeps the documentation true.",
        ("Reasoning", "Memory"),
        ("generate_docs_update_steps",),
    ),
    Trade(
        "upgrader",
        "Upgrader",
        "Brings dependencies up to date, one at a time.",
        ("Reasoning",),
        ("generate_dependency_upgrade_steps",),
    ),
    Trade(
        "oncall",
        "On-call helper",
        "Looks into alerts and writes down what it found.",
        ("Reasoning", "Memory"),
        ("generate_alert_steps",),
    ),
    Trade(
        "analyst",
        "Analyst",
        "Answers questions with numbers and says where they come from.",
        ("Reasoning", "Vision"),
        ("generate_data_question_steps",),
    ),
    Trade(
        "captain",
        "Release captain",
        "Prepares releases and hands parts of the work to others.",
        ("Reasoning", "Memory"),
        ("generate_release_steps",),
    ),
)

SERVERS = (
    DemoMcpServer(
        "github",
        "npx",
        ("-y", "@modelcontextprotocol/server-github"),
        "Issues, pull requests and reviews of our repositories.",
        "opt-out",
        ("get_pull_request", "create_pull_request", "add_comment", "merge_pull_request", "search_issues"),
    ),
    DemoMcpServer(
        "postgres-readonly",
        "uvx",
        ("mcp-server-postgres", "--read-only"),
        "The reporting replica. Reads only.",
        "opt-in",
        ("query", "list_tables", "describe_table"),
    ),
    DemoMcpServer(
        "deploy",
        "node",
        ("servers/deploy/index.js", "--region", "eu-west-1"),
        "Rolls services out and back.",
        "opt-in",
        ("list_releases", "deploy_service", "roll_back"),
    ),
    DemoMcpServer(
        "grafana",
        "uvx",
        ("mcp-grafana",),
        "Dashboards, metrics and logs.",
        "opt-out",
        ("query_metrics", "query_logs", "list_alerts"),
    ),
    DemoMcpServer(
        "filesystem",
        "npx",
        ("-y", "@modelcontextprotocol/server-filesystem", "/srv/work"),
        "Files below /srv/work.",
        "opt-out",
        ("read_file", "write_file", "list_directory"),
    ),
    DemoMcpServer(
        "payments-sandbox",
        "python3",
        ("-m", "acme_payments_mcp", "--sandbox"),
        "Test payments against the sandbox.",
        "opt-in",
        ("create_charge", "refund_charge", "list_charges"),
    ),
    DemoMcpServer(
        "team-chat",
        "npx",
        ("-y", "@acme/chat-mcp"),
        "Posts to the team's channels.",
        "opt-in",
        ("post_message", "read_channel"),
    ),
    DemoMcpServer(
        "old-crm",
        "python3",
        ("legacy/crm_server.py",),
        "Customer records. Being retired.",
        "opt-in",
        ("find_customer", "export_customers"),
    ),
)

# Whom the demo's decisions and messages are from. They are names in history, not accounts to sign in with: no account
# can have such a name, so that nobody takes them for people who were here.
PEOPLE = ("maria (demo)", "jonas (demo)", "aiko (demo)", "samir (demo)")

# Whose sessions people start in their terminals, with an agent program each; runners drive the others.
TERMINAL_TRADES = ("fixer", "tester", "librarian", "upgrader")
AT_TERMINALS = ("claude-code", "codex")  # the agent programs there, whose words demo.programs knows

PLUGINS = {
    "bridge.github": (
        ["NetworkAccess"],
        {"api_base": "https://github.example/api", "token": "demo-not-a-secret"},
    ),
    "tool.terminal": (["ProcessExecution", "FileRead"], {"timeout_s": "120", "shell": "/bin/bash"}),
    "vision.screens": (["VisionRead"], {"max_width": "1600"}),
    "tool.browser": (
        ["NetworkAccess", "InputControl"],
        {"headless": "true", "proxy_password": "demo-not-a-secret"},
    ),
}


def demo_agent_id(team: Team, trade: Trade) -> str:
    """Return the id in the `agents` table."""
    return f"agent.{team.name}_{trade.name}"


def demo_blueprint_name(team: Team, trade: Trade) -> str:
    """Return the name by which sessions and blueprints know the agent."""
    return f"{team.name}-{trade.name}"


def choose_agent_program(team: Team, trade: Trade) -> str | None:
    """Return the agent program (programs.PROGRAMS) that an agent's sessions run in; None: a runner's executor."""
    if trade.name not in TERMINAL_TRADES:
        return None
    index = TEAMS.index(team) * len(TERMINAL_TRADES) + TERMINAL_TRADES.index(trade.name)
    return (*AT_TERMINALS, None)[index % (len(AT_TERMINALS) + 1)]
