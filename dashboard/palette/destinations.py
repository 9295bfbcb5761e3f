"""The destinations of the command palette: pages and actions by name, and rows by a few letters."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from django.contrib.auth.models import AnonymousUser, User
from django.db.models import Q
from django.urls import reverse
from django.utils.http import urlencode

from coordinator.identity.roles import ADMIN, APPROVER, VIEWER, has_role
from coordinator.models import Agent, PermissionRequest, Session
from coordinator.sessions import titles
from dashboard.frame.context import RailItem

MAX_ROWS = 6  # of each kind
MAX_WORDS = 8  # of a query; each adds a condition to the SQL
# Only this many latest sessions are searched. The list of sessions searches all of them.
SEARCHED_SESSIONS = 2_000


@dataclass(frozen=True, slots=True)
class Destination:
    """A line of the palette. `words` are further search terms, which are not shown."""

    label: str
    url: str
    icon: str
    note: str = ""
    words: str = ""


@dataclass(frozen=True, slots=True)
class DestinationGroup:
    title: str
    destinations: list[Destination]


@dataclass(frozen=True, slots=True)
class NamedPage:
    """A page or an action that the navigation rail does not list."""

    label: str
    url_name: str
    icon: str
    least: str = VIEWER  # the lowest role that may open it
    words: str = ""  # further search terms, which are not shown
    anchor: str = ""


PAGES: tuple[NamedPage, ...] = (
    NamedPage("Decided requests", "approvals:history", "approvals", words="approval history denied"),
    NamedPage("Statistics of approvals", "approvals:statistics", "usage"),
    NamedPage("Tools: calls, failures and times", "costs:tools", "tool"),
    NamedPage("Grants", "mcp:grants", "mcp", words="access permissions"),
    NamedPage("MCP servers", "mcp:list", "mcp", words="tools gateway"),
    NamedPage("Access of one agent", "mcp:sheet", "mcp", words="grants sheet"),
    NamedPage("Suggested rules", "rules:suggestions", "rules"),
    NamedPage("Files that agents touched", "search:files", "file"),
    NamedPage("Imported transcripts", "connections:imports", "terminal", words="machines watch history"),
    NamedPage("Verify the audit log", "audit:verify", "audit", words="proof checkpoint"),
    NamedPage("Escalation", "approvals:escalation", "bell", least=ADMIN, words="notifications steps"),
    NamedPage("Account", "accounts:account", "user", words="passkeys recovery codes colours theme profile"),
    NamedPage("Help", "help:index", "help", words="documentation manual"),
)
ACTIONS: tuple[NamedPage, ...] = (
    NamedPage("Connect an agent", "connections:home", "terminal", words="machine code key install"),
    NamedPage("Start a run", "runs:new", "runs", least=APPROVER, words="new order"),
    NamedPage("Write a rule", "rules:list", "rules", least=APPROVER, words="policy new make"),
    NamedPage("Put on the brake", "brakes:home", "st-ban", least=APPROVER, words="stop halt emergency"),
    NamedPage("Add a budget", "budgets:home", "budgets", least=APPROVER, words="limit cost tokens"),
    NamedPage("Add an MCP server", "mcp:add", "mcp", least=ADMIN, words="new register"),
    NamedPage("Add an agent", "agents:new", "agents", least=ADMIN, words="new create"),
    NamedPage("Create an API key", "keys:list", "key", least=ADMIN, words="new token"),
    NamedPage(
        "Invite a person", "people:list", "people", least=ADMIN, words="add user account", anchor="invite"
    ),
    NamedPage("Password", "accounts:password", "key"),
)


def find_destination_groups(
    query: str, rail: Iterable[RailItem], user: User | AnonymousUser
) -> list[DestinationGroup]:
    """Return the destinations that match `query` and that `user` may open.

    An empty query returns the entries of the rail, the actions and the latest sessions.

    Args:
        query: The text that the person typed.
        rail: The entries of the navigation rail that the person sees.
        user: The person who searches.
    """
    words = query.casefold().split()[:MAX_WORDS]
    groups = [
        DestinationGroup("Pages", find_page_destinations(words, rail, user)),
        DestinationGroup("Actions", filter_pages_by_role_and_query(words, ACTIONS, user)),
        DestinationGroup("Requests", find_request_destinations_by_id(query.strip())),
        DestinationGroup("Sessions", find_session_destinations(words)),
    ]
    if words:
        groups.append(DestinationGroup("Agents", find_agent_destinations(words)))
        if has_role(user, ADMIN):
            groups.append(DestinationGroup("People", find_people_destinations(words)))
        groups.append(DestinationGroup("Search", list_further_search_pages(query.strip())))
    return [group for group in groups if group.destinations]


def find_page_destinations(
    words: list[str], rail: Iterable[RailItem], user: User | AnonymousUser
) -> list[Destination]:
    pages = [
        Destination(item.entry.label, item.url, item.entry.icon, note=item.group)
        for item in rail
        if has_all_words(f"{item.entry.label} {item.group}", words)
    ]
    pages.sort(key=lambda page: not page.label.casefold().startswith(" ".join(words)))  # stable
    return [*pages, *filter_pages_by_role_and_query(words, PAGES, user)] if words else pages


def filter_pages_by_role_and_query(
    words: list[str], pages: Iterable[NamedPage], user: User | AnonymousUser
) -> list[Destination]:
    """Return the pages that `user` may open and whose label or search terms contain all words."""
    return [
        Destination(page.label, reverse(page.url_name) + (page.anchor and f"#{page.anchor}"), page.icon)
        for page in pages
        if has_role(user, page.least) and has_all_words(f"{page.label} {page.words}", words)
    ]


def has_all_words(text: str, words: list[str]) -> bool:
    folded = text.casefold()
    return all(word in folded for word in words)


def find_request_destinations_by_id(query: str) -> list[Destination]:
    """Return the permission request with exactly this id, or an empty list."""
    if not PermissionRequest.objects.filter(request_id=query).exists():
        return []
    return [Destination(query, reverse("approvals:detail", args=[query]), "approvals")]


def find_session_destinations(words: list[str]) -> list[Destination]:
    """Return the latest sessions in which each word occurs in the title, id, agent, host or directory."""
    latest = Session.objects.order_by("-created_at", "-pk")
    rows = latest
    if words:
        rows = rows.filter(pk__in=list(latest.values_list("pk", flat=True)[:SEARCHED_SESSIONS]))
    for word in words:
        rows = rows.filter(
            Q(session_id__icontains=word)
            | Q(agent_name__icontains=word)
            | Q(hostname__icontains=word)
            | Q(project_dir__icontains=word)
            | Q(own_title__title__icontains=word)
        )
    sessions = list(rows[:MAX_ROWS])
    named = titles.load_session_titles(session.pk for session in sessions)
    return [
        Destination(
            named.get(session.pk) or session.pk,
            reverse("sessions:detail", args=[session.pk]),
            "sessions",
            note=" · ".join(filter(None, [session.agent_name, session.status])),
        )
        for session in sessions
    ]


def find_agent_destinations(words: list[str]) -> list[Destination]:
    rows = Agent.objects.order_by("name", "pk")
    for word in words:
        rows = rows.filter(Q(id__icontains=word) | Q(name__icontains=word))
    return [
        Destination(row.name or row.pk, reverse("agents:detail", args=[row.pk]), "agents", note=row.pk)
        for row in rows[:MAX_ROWS]
    ]


def find_people_destinations(words: list[str]) -> list[Destination]:
    rows = User.objects.order_by("username")
    for word in words:
        rows = rows.filter(
            Q(username__icontains=word) | Q(first_name__icontains=word) | Q(last_name__icontains=word)
        )
    return [
        Destination(row.username, reverse("people:detail", args=[row.pk]), "user", note=row.get_full_name())
        for row in rows[:MAX_ROWS]
    ]


def list_further_search_pages(query: str) -> list[Destination]:
    """Return links to pages that search more than the palette does."""
    terms, path = urlencode({"q": query}), urlencode({"path": query})
    return [
        Destination(f"All sessions with “{query}”", f"{reverse('sessions:list')}?{terms}", "search"),
        Destination(f"Messages and tool calls with “{query}”", f"{reverse('search:find')}?{terms}", "search"),
        Destination(f"Files whose path has “{query}”", f"{reverse('search:files')}?{path}", "file"),
    ]
