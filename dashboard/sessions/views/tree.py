"""A graph of a session, of the sessions that it started, and of those that started it."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from django.http import HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse

from coordinator.identity.declarations import require_safe
from coordinator.models import Session
from coordinator.models.agent_names import LinkedAgent, load_linked_agents_by_name
from coordinator.sessions import titles
from coordinator.sessions.statuses import AT_WORK
from dashboard.frame.guards import require_viewer_role
from dashboard.frame.htmx import HtmxHttpRequest
from dashboard.looks.charts import LinkGraph, OutlineNode, build_link_graph

MOST_SESSIONS = 60  # in one graph; more would be illegible
MOST_LEVELS = 5
TONES = (("ask", "At work"), ("allow", "Finished"), ("deny", "Error"), ("none", "Other"))


@dataclass(frozen=True, slots=True)
class SessionTree:
    """Sessions by level, starting with the root. `is_whole` is False if sessions were left out."""

    levels: Sequence[Sequence[Session]]
    is_whole: bool

    @property
    def all_sessions(self) -> list[Session]:
        """The sessions of all levels."""
        return [session for level in self.levels for session in level]


@require_safe
@require_viewer_role
def show_session_tree(request: HtmxHttpRequest, session_id: str) -> HttpResponse:
    session = get_object_or_404(Session, pk=session_id)
    tree = load_session_tree(session)
    session_titles = titles.load_session_titles(row.pk for row in tree.all_sessions)
    agents = load_linked_agents_by_name(row.agent_name for row in tree.all_sessions)
    context = {
        "session": session,
        "title": session_titles.get(session.pk, ""),
        "tree": tree,
        "tones": TONES,
        "rows": [
            (
                depth,
                row,
                session_titles.get(row.pk, ""),
                agents.get(row.agent_name or ""),
            )
            for depth, level in enumerate(tree.levels)
            for row in level
        ],
        "graph": build_session_graph(tree, agents, session_titles),
        "outline": build_session_tree_outline(tree, agents, session_titles),
    }
    return render(request, "sessions/tree.html", context)


def load_session_tree(session: Session) -> SessionTree:
    """Return the tree around a session: its ancestors up to the root, and the root's descendants.

    Other programs report the parents, which may form a cycle. No session is included twice.
    """
    root, ancestors = session, {session.pk}
    while root.parent_session_id and root.parent_session_id not in ancestors and len(ancestors) < MOST_LEVELS:
        parent = Session.objects.filter(pk=root.parent_session_id).first()
        if parent is None:
            break
        ancestors.add(parent.pk)
        root = parent
    has_more_above = bool(root.parent_session_id) and root.parent_session_id not in ancestors
    levels, taken_ids, is_whole = [[root]], {root.pk}, not has_more_above
    while len(levels) < MOST_LEVELS:
        rows = Session.objects.filter(parent_session_id__in=[row.pk for row in levels[-1]])
        free_count = MOST_SESSIONS - len(taken_ids)
        children = [
            row
            for row in rows.order_by("created_at", "session_id")[: free_count + 1]
            if row.pk not in taken_ids
        ]
        is_whole = is_whole and len(children) <= free_count
        level = children[:free_count]
        # Of very many, the session itself and those above it are never left out.
        on_path = [row for row in rows.filter(pk__in=ancestors - taken_ids) if row not in level]
        if free_count > len(on_path):
            level = [*level[: free_count - len(on_path)], *on_path]
        if not level:
            return SessionTree(levels, is_whole)
        levels.append(level)
        taken_ids |= {row.pk for row in level}
    further = Session.objects.filter(parent_session_id__in=[row.pk for row in levels[-1]])
    return SessionTree(levels, is_whole and not further.exclude(pk__in=taken_ids).exists())


def build_session_graph(
    tree: SessionTree, agents: dict[str, LinkedAgent], session_titles: dict[str, str]
) -> LinkGraph:
    columns: list[dict[Hashable, tuple[str, str]]] = [
        {
            row.pk: (
                session_graph_box_label(row, agents, session_titles),
                reverse("sessions:detail", args=[row.pk]),
            )
            for row in level
        }
        for level in tree.levels
    ]
    links = [
        (
            (depth - 1, row.parent_session_id),
            (depth, row.pk),
            css_tone_of_session_status(row.status),
            f"{session_graph_box_label(row, agents, session_titles)}: {row.status}",
        )
        for depth, level in enumerate(tree.levels)
        for row in level
        if depth
    ]
    return build_link_graph(columns, links)


def build_session_tree_outline(
    tree: SessionTree, agents: dict[str, LinkedAgent], session_titles: dict[str, str]
) -> list[OutlineNode]:
    """Return the sessions of the graph as an outline, each below its parent."""
    nodes = {
        row.pk: OutlineNode(
            session_graph_box_label(row, agents, session_titles),
            reverse("sessions:detail", args=[row.pk]),
            css_tone_of_session_status(row.status),
            row.status,
        )
        for row in tree.all_sessions
    }
    root, *others = tree.all_sessions
    for row in others:
        nodes[str(row.parent_session_id)].children.append(nodes[row.pk])
    return [nodes[root.pk]]


def session_graph_box_label(
    row: Session, agents: dict[str, LinkedAgent], session_titles: dict[str, str]
) -> str:
    agent = agents.get(row.agent_name or "")
    name = agent.agent_name if agent else row.agent_name
    return name or session_titles.get(row.pk) or row.pk


def css_tone_of_session_status(status: str) -> str:
    """Return the tone of the link to a session: at work, finished, failed or other."""
    if status == Session.Status.ERROR:
        return "deny"
    return "ask" if status in AT_WORK else "allow" if status == Session.Status.FINISHED else "none"
