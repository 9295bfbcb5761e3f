"""Which help page explains a page. The frame links to it as "How this works".

Each row has a page's URL name, and the help page, with an anchor if only a section explains it.
"""

from __future__ import annotations

from django.http import HttpRequest
from django.urls import reverse

EXPLAINED: dict[str, str] = {
    "overview": "install",
    "approvals:inbox": "approvals",
    "approvals:history": "approvals",
    "approvals:detail": "approvals#decide-a-request",
    "approvals:notifications": "notifications",
    "approvals:escalation": "notifications#choose-what-you-get",
    "deciders:home": "approvals#who-decides",
    "rules:list": "rules#write-a-rule",
    "rules:ready-made-calls": "rules#ready-made-rules",
    "rules:suggestions": "rules#try-a-rule-first",
    "brakes:home": "rules#the-brake",
    "budgets:home": "usage#budgets",
    "costs:show": "usage#tokens-and-costs",
    "costs:tools": "usage#tools",
    "sessions:list": "sessions",
    "search:find": "sessions#search",
    "runs:list": "runner#work-with-a-session",
    "runs:new": "runner#work-with-a-session",
    "runners:list": "runner#start-a-runner",
    "chat:list": "api#talk-with-an-agent",
    "mcp:list": "mcp",
    "mcp:collections": "mcp#collections",
    "mcp:server": "mcp#isolation",
    "mcp:try": "mcp#try-a-tool",
    "mcp:grants": "mcp#grants",
    "mcp:matrix": "mcp#grants",
    "mcp:graph": "mcp#grants",
    "connections:home": "agents#connect-an-agent",
    "connections:agent": "agents#notes-on-each-agent",
    "connections:imports": "import#import-agents-own-sessions",
    "connections:machine": "import#import-agents-own-sessions",
    "agents:list": "api#keys-of-agents",
    "agents:detail": "agents#one-agent-under-several-names",
    "audit:list": "audit",
    "audit:verify": "audit#verify-the-whole-log",
    "keys:list": "api#keys",
    "people:list": "sign-in#invite-people",
    "people:detail": "sign-in#invite-people",
    "accounts:account": "sign-in",
}


def help_url(target: str) -> str:
    """Return the URL of a help page or of a section of it (`approvals#who-decides`)."""
    name, _, anchor = target.partition("#")
    return reverse("help:page", args=[name]) + (f"#{anchor}" if anchor else "")


def page_help_url_or_empty(request: HttpRequest) -> str:
    """Return the URL of the help about the request's page; empty if there is none."""
    match = request.resolver_match
    target = EXPLAINED.get(match.view_name) if match else None
    return help_url(target) if target else ""
