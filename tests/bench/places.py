"""`python -m tests.bench.places`: where the time of each page, door and job goes on PostgreSQL, by its statements.

Works inside, on the database that DATABASE_URL names and that `tests.bench.months` has filled; the
server must have loaded pg_stat_statements and the database have the extension. Prints one row for each. Statements
of other roles do not count: give it a role of its own where others work.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import django


def main() -> None:
    """Ask for each and print its row."""
    options = arguments()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "coordinator.settings")
    django.setup()
    asked = {"page": pages, "door": doors, "job": jobs}[options.kind]()
    print(
        "| what | processor ms | first ms | p50 ms | max ms | of it SQL ms | slowest statement, ms | statement |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|---|")
    for name, ask in asked.items():
        if options.only in name:
            row(name, ask, options.times)


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.places", description=__doc__)
    parser.add_argument("kind", choices=("page", "door", "job"))
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--only", default="")
    return parser.parse_args()


def row(name: str, ask: Callable[[], Any], times: int) -> None:
    """Print how long it took, and the statement that took longest in sum."""
    from tests.bench.finding import processor_seconds
    from tests.bench.months import sql

    first = milliseconds(ask)
    sql("SELECT pg_stat_statements_reset((SELECT oid FROM pg_roles WHERE rolname = current_user), 0, 0)")
    used = processor_seconds()
    took = sorted(milliseconds(ask) for _ in range(times))
    used = (processor_seconds() - used) * 1000 / times
    statements = sql(
        "SELECT total_exec_time, calls, query FROM pg_stat_statements WHERE query NOT LIKE '%%pg_stat%%'"
        " AND userid = (SELECT oid FROM pg_roles WHERE rolname = current_user)"
        " AND dbid = (SELECT oid FROM pg_database WHERE datname = current_database())"
        " AND toplevel ORDER BY total_exec_time DESC"
    )
    whole = sum(one[0] for one in statements) / times
    slowest = statements[0] if statements else (0, 1, "")
    text = " ".join(slowest[2].split())[:100].replace("|", "¦")
    print(
        f"| {name} | {used:.0f} | {first:.0f} | {took[len(took) // 2]:.0f} | {took[-1]:.0f} | {whole:.0f} |"
        f" {slowest[0] / times:.0f} | `{text}` |",
        flush=True,
    )


def milliseconds(ask: Callable[[], Any]) -> float:
    began = time.perf_counter()
    answer = ask()
    took = (time.perf_counter() - began) * 1000
    status = getattr(answer, "status_code", 200)
    if status != 200:
        print(f"answered {status}: {getattr(answer, 'content', b'')[:200]!r}", flush=True)
    return took


def client() -> Any:
    """Return a signed-in administrator's client."""
    from django.conf import settings
    from django.contrib.auth.models import Group, User
    from django.test import Client

    from coordinator.operations.startup import collect_static_files_if_changed
    from tests.bench.finding import PERSON

    settings.ALLOWED_HOSTS = ["testserver"]
    collect_static_files_if_changed(say=lambda _: None)
    user, _ = User.objects.get_or_create(username=PERSON, is_staff=True, is_superuser=True)
    user.groups.add(Group.objects.get(name="admin"))
    signed_in = Client()
    signed_in.force_login(user)
    return signed_in


def _sessions() -> dict[str, str]:
    from coordinator.models import Session
    from tests.bench import corpus

    names = list(Session.objects.exclude(pk=corpus.LONG).order_by("created_at").values_list("pk", flat=True))
    return {
        "an old session": names[len(names) // 100],
        "a session of the middle": names[len(names) // 2],
        "a new session": names[len(names) * 99 // 100],
        "a very long session": corpus.LONG,
    }


def pages() -> dict[str, Callable[[], Any]]:
    """Return the pages that people open most, and some that look at very much."""
    from django.utils import timezone

    from tests.bench import corpus

    long = corpus.LONG
    month = str((timezone.now() - timedelta(days=60)).date())
    asked = {
        "overview": "/ui/",
        "approvals": "/ui/approvals/",
        "approvals, history": "/ui/approvals/history/",
        "approvals, statistics": "/ui/approvals/statistics/",
        "sessions": "/ui/sessions/",
        "sessions, page 100": "/ui/sessions/?page=100",
        "sessions, a word": "/ui/sessions/?q=agent-3",
        "sessions, a word of none": "/ui/sessions/?q=nothing",
        "sessions, a folder": "/ui/sessions/?dir=projects/7",
        "sessions, a status": "/ui/sessions/?status=error",
        "sessions, with errors": "/ui/sessions/?errors=on",
        "sessions, a tool": "/ui/sessions/?tool=Grep",
        "sessions, a file": f"/ui/sessions/?file={corpus.HOT}",
        "sessions, since two months": f"/ui/sessions/?since={month}",
        **{name: f"/ui/sessions/{pk}/" for name, pk in _sessions().items()},
        "its end": f"/ui/sessions/{long}/?from=end",
        "its errors": f"/ui/sessions/{long}/?errors=on",
        "its messages": f"/ui/sessions/{long}/?kind=messages",
        "its calls of a tool": f"/ui/sessions/{long}/?tool=Grep",
        "a word in it": f"/ui/sessions/{long}/?q=needle",
        "runs": "/ui/runs/",
        "chat": "/ui/chat/",
        "agents": "/ui/agents/",
        "audit": "/ui/audit/",
        "costs": "/ui/costs/",
        "costs of 30 days": "/ui/costs/?days=30",
        "costs of 90 days": "/ui/costs/?days=90",
        "budgets": "/ui/budgets/",
        "MCP": "/ui/mcp/",
        "an MCP server": "/ui/mcp/servers/tickets/",
        "MCP, unknown servers": "/ui/mcp/unknown/",
        "MCP, grants": "/ui/mcp/grants/",
        "rules": "/ui/rules/",
        "rules, suggestions": "/ui/deciders/rules/suggestions/",
        "search, a word of every event": "/ui/search/?q=everywhere",
        "search, a rare word": "/ui/search/?q=needle",
        "search, one event's word": "/ui/search/?q=ce4da3b7f",
        "search, a piece of very many words": "/ui/search/?q=ce4",
        "search, a word of old events": "/ui/search/?q=yesteryear",
        "search, two words that never meet": "/ui/search/?q=evening+oddly",
        "search, a word of an agent": "/ui/search/?q=everywhere&agent=agent-3",
        "search, a beginning": "/ui/search/?q=ident*",
        "files": "/ui/files/",
        "files, a path that many calls touch": f"/ui/files/?path={corpus.HOT}",
        "files, an end of many paths": "/ui/files/?path=0.py",
        "admin, events": "/admin/coordinator/event/",
        "admin, sessions": "/admin/coordinator/session/",
        "admin, runs": "/admin/coordinator/run/",
    }
    person = client()
    return {name: lambda path=path: person.get(path, follow=True) for name, path in asked.items()}  # type: ignore[misc]


def doors() -> dict[str, Callable[[], Any]]:
    """Return machines' doors that read."""
    from coordinator.models import Session

    asked = {
        "GET /sessions": "/sessions",
        "GET /sessions?limit=50": "/sessions?limit=50",
        "GET /runs": "/runs",
    }
    for name, pk in _sessions().items():
        Session.objects.filter(pk=pk).update(status="finished")
        asked |= {
            f"{name}": f"/sessions/{pk}",
            f"{name}: result": f"/sessions/{pk}/result",
            f"{name}: events": f"/sessions/{pk}/events",
            f"{name}: events, limit 1000": f"/sessions/{pk}/events?limit=1000",
        }
    asked["permission requests"] = "/api/permission-requests"
    person, key = client(), _key()
    return {
        name: lambda path=path: person.get(path, HTTP_AUTHORIZATION=f"Bearer {key}")  # type: ignore[misc]
        for name, path in asked.items()
    }


def _key() -> str:
    from io import StringIO

    from django.core.management import call_command

    said = StringIO()
    scopes = [word for scope in ("runner", "agent", "operator", "read") for word in ("--scope", scope)]
    call_command("apikey", "create", f"bench-{time.time()}", *scopes, stdout=said)
    return next(word for word in said.getvalue().split() if word.startswith("sbx_"))


def jobs() -> dict[str, Callable[[], Any]]:
    """Return housekeeping's jobs, and the doctor's looks at the events and the index."""
    from django.utils import timezone

    from coordinator.actions import search
    from coordinator.operations.jobs import JOBS

    asked: dict[str, Callable[[], Any]] = {
        job.name: lambda job=job: job.work(timezone.now())  # type: ignore[misc]
        for job in JOBS
        if job.name != "prune"
    }
    asked["doctor: search"] = search.count_unindexed_events
    return asked


if __name__ == "__main__":
    main()
