"""`python -m tests.bench.finding`: how long searching and listing take on a database that holds very much.

Unlike the rest of the kit it works inside, on the database that the environment names (SIGNALBOX_DATA_DIR or
DATABASE_URL): each figure is the server's own time for a whole page, without HTTP and without a second client.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from urllib.parse import urlencode

import django

PERSON = "bench"


def main() -> None:
    """Fill, index or measure, as the command line asks."""
    options = arguments()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "coordinator.settings")
    django.setup()
    from django.utils import timezone

    from tests.bench import corpus

    if options.fill:
        began = time.monotonic()
        corpus.fill(corpus.Size(options.sessions, options.fill), timezone.now(), print)
        print(f"filled in {time.monotonic() - began:.0f} s; now `manage.py rebuild_search`")
        return
    print("| page | processor ms | p50 ms | p95 ms | max ms | rows |\n|---|---:|---:|---:|---:|---:|")
    measure(options, timezone.now())


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.finding", description=__doc__)
    parser.add_argument(
        "--fill", type=int, metavar="EVENTS", help="write so many events, and measure nothing"
    )
    parser.add_argument("--sessions", type=int, default=100_000, help="with --fill: how many sessions")
    parser.add_argument("--times", type=int, default=11, help="how often each page is asked for")
    parser.add_argument("--patience", type=float, help="let a search look back for so many seconds")
    parser.add_argument("--only", default="", help="pages whose name has this in it")
    return parser.parse_args()


def measure(options: argparse.Namespace, now: datetime) -> None:
    """Ask for each page as a signed-in person and print its figures."""
    from django.conf import settings
    from django.contrib.auth.models import Group, User
    from django.test import Client

    from coordinator.operations.startup import collect_static_files_if_changed
    from coordinator.search import index as search_index

    settings.ALLOWED_HOSTS = ["testserver"]
    if options.patience:
        search_index.WALK_SECONDS = options.patience
    collect_static_files_if_changed(say=print)
    user, _ = User.objects.get_or_create(username=PERSON)
    user.groups.add(Group.objects.get(name="admin"))
    client = Client()
    client.force_login(user)
    for name, path in pages(now).items():
        if options.only in name:
            report(name, options.times, lambda path=path: client.get(path))  # type: ignore[misc]
    user.delete()


def report(name: str, times: int, ask: Callable[[], object]) -> None:
    """Print one row of the table."""
    rows = "?"
    ask()
    took = []
    used = processor_seconds()
    for _ in range(times):
        began = time.perf_counter()
        answer = ask()
        took.append((time.perf_counter() - began) * 1000)
        assert answer.status_code == 200, (name, answer)  # type: ignore[attr-defined]
        rows = str(answer.content.count(b"data-row>") + answer.content.count(b"data-session-row"))  # type: ignore[attr-defined]
    used = (processor_seconds() - used) * 1000 / times
    took = sorted(took)
    p95 = took[min(len(took) - 1, round(len(took) * 0.95))]
    print(
        f"| {name} | {used:.0f} | {took[len(took) // 2]:.0f} | {p95:.0f} | {took[-1]:.0f} | {rows} |",
        flush=True,
    )


def processor_seconds() -> float:
    """Return what this process has used of the processor, and on the same machine PostgreSQL's for it."""
    from django.db import connection

    if connection.vendor == "sqlite":
        return time.process_time()
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        fields = Path(f"/proc/{cursor.fetchone()[0]}/stat").read_text().rpartition(")")[2].split()
    return time.process_time() + (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def pages(now: datetime) -> dict[str, str]:
    """Return the paths to ask for, by name."""
    return searches(now) | files() | lists(now) | timelines() | admin()


def searches(now: datetime) -> dict[str, str]:
    """Return every shape of question over all sessions."""
    from tests.bench import corpus

    days = {"since": str((now - timedelta(days=80)).date()), "until": str((now - timedelta(days=70)).date())}
    far_back = f"{int((now - timedelta(days=80)).timestamp()) * 1_000_000}-1"
    asked: dict[str, dict[str, str]] = {
        "a word in every event": {"q": "everywhere"},
        "a rare word": {"q": "needle"},
        "no such word": {"q": "nowhere"},
        "a word of old events only": {"q": "yesteryear"},
        "two common words": {"q": "everywhere evening"},
        "two common words that never meet": {"q": "evening oddly"},
        "a common and a rare word": {"q": "everywhere needle"},
        "a phrase in every event": {"q": '"everywhere evening"'},
        "a rare phrase": {"q": '"needle in a haystack"'},
        "a phrase of common words, nowhere": {"q": '"evening everywhere"'},
        "a broad beginning": {"q": f"{corpus.BEGINNING}*"},
        "a one-letter beginning": {"q": "b*"},
        "a beginning of every event": {"q": "every*"},
        "a rare beginning": {"q": "needl*"},
        "a beginning of nothing": {"q": "nowhe*"},
        "a beginning of old events only": {"q": "yest*"},
        "a broad beginning and a rare word": {"q": f"{corpus.BEGINNING}* needle"},
        "a broad beginning and a word of old events": {"q": f"{corpus.BEGINNING}* yesteryear"},
        "two broad beginnings": {"q": f"{corpus.BEGINNING}* b*"},
        "two beginnings that never meet": {"q": "eveni* odd*"},
        "a phrase that ends in a beginning": {"q": '"everywhere evening" ident*'},
        "a piece of a word in every event": {"q": "erywher"},
        "a piece of a rare word": {"q": "eedl"},
        "a piece of very many words": {"q": "dent"},
        "a piece of nothing": {"q": "zzqqx"},
        "a piece of old events only": {"q": "esteryea"},
        "a piece of very many words, an agent without hits": {"q": "dent", "agent": corpus.IDLE_AGENT},
        "two pieces": {"q": "vening dent"},
        "a piece across two words": {"q": "where.even"},
        "a piece across two words, rare": {"q": "dle.in.a.hay"},
        "a piece across two words, nowhere": {"q": "vening.eve"},
        "a path": {"q": "projects/1/src/sett"},
        "an exact phrase with signs": {"q": '"src/settings.py"'},
        "an exact phrase that is nowhere": {"q": '"everywhere, evening"'},
        "signs alone": {"q": '"!="'},
        "an agent, a word in every event": {"q": "everywhere", "agent": "agent-3"},
        "an agent without hits": {"q": "everywhere", "agent": corpus.IDLE_AGENT},
        "no such agent": {"q": "everywhere", "agent": "nobody"},
        "an agent, a broad beginning": {"q": f"{corpus.BEGINNING}*", "agent": "agent-3"},
        "an agent without hits, a broad beginning": {
            "q": f"{corpus.BEGINNING}*",
            "agent": corpus.IDLE_AGENT,
        },
        "one small session": {"q": "everywhere", "session": "ses_00000000c350"},
        "the long session": {"q": "everywhere", "session": corpus.LONG},
        "the long session, a rare word": {"q": "needle", "session": corpus.LONG},
        "the long session, a broad beginning": {"q": f"{corpus.BEGINNING}*", "session": corpus.LONG},
        "one type": {"q": "everywhere", "kind": "message"},
        "one tool": {"q": "everywhere", "tool": "Grep"},
        "no such tool": {"q": "everywhere", "tool": "None"},
        "old days": {"q": "everywhere", **days},
        "old days, a broad beginning": {"q": f"{corpus.BEGINNING}*", **days},
        "days before all events": {"q": "everywhere", "until": "2001-01-01"},
        "days after all events": {"q": "everywhere", "since": "2100-01-01"},
        "days before, a broad beginning": {"q": f"{corpus.BEGINNING}*", "until": "2001-01-01"},
        "old days, a word they do not have": {
            "q": "yesteryear",
            "since": str((now - timedelta(days=20)).date()),
        },
        "a deep page of a word in every event": {"q": "everywhere", "before": far_back},
        "a deep page of a broad beginning": {"q": f"{corpus.BEGINNING}*", "before": far_back},
    }
    return {f"search: {name}": f"/ui/search/?{urlencode(data)}" for name, data in asked.items()}


def files() -> dict[str, str]:
    """Return questions for what was done to files."""
    from tests.bench import corpus

    asked = {
        "nothing asked": {},
        "a path that very many calls touch": {"path": corpus.HOT},
        "the end of it": {"path": "settings.py"},
        "its page far back": {"path": corpus.HOT, "before": "100000"},
        "a tool and an agent": {"path": corpus.HOT, "tool": "Read", "agent": "agent-3"},
        "a tool that touched none": {"path": corpus.HOT, "tool": "Bash"},
        "a piece of very many paths": {"path": "src/"},
        "no such path": {"path": "nowhere.py"},
    }
    return {f"files: {name}": f"/ui/files/?{urlencode(data)}" for name, data in asked.items()}


def lists(now: datetime) -> dict[str, str]:
    """Return the sessions' list in every order, and with every filter."""
    from tests.bench import corpus

    days = {"since": str((now - timedelta(days=40)).date()), "until": str((now - timedelta(days=30)).date())}
    asked: dict[str, dict[str, str]] = {
        "first page": {},
        "page 100": {"page": "100"},
        "the last page": {"page": "99999"},
        "oldest first": {"sort": "started"},
        "by agent": {"sort": "agent"},
        "by agent, backwards": {"sort": "-agent"},
        "by status": {"sort": "status"},
        "by status, page 100": {"sort": "status", "page": "100"},
        "running": {"status": "running"},
        "finished": {"status": "finished"},
        "finished, by agent": {"status": "finished", "sort": "agent"},
        "an agent": {"agent": "agent-3"},
        "an agent, page 50": {"agent": "agent-3", "page": "50"},
        "a host": {"host": "host-5"},
        "a host and an agent": {"host": "host-5", "agent": "agent-5"},
        "a directory": {"dir": "projects/5"},
        "a word": {"q": "agent-3"},
        "a tool": {"tool": "Read"},
        "a tool nobody called": {"tool": "Nothing"},
        "a file that very many touched": {"file": corpus.HOT},
        "a piece of very many paths": {"file": "src/"},
        "a file nobody touched": {"file": "nowhere.py"},
        "a session's id": {"q": "ses_00000000c350"},
        "no such word": {"q": "nothing"},
        "with errors": {"errors": "true"},
        "with errors, page 100": {"errors": "true", "page": "100"},
        "waiting": {"waiting": "true"},
        "days": days,
        "days, by agent": {**days, "sort": "agent"},
        "since long ago": {"since": "2001-01-01"},
        "children": {"parent": "ses_000000000006"},
    }
    return {f"sessions: {name}": f"/ui/sessions/?{urlencode(data)}" for name, data in asked.items()}


def timelines() -> dict[str, str]:
    """Return windows of the long session."""
    from tests.bench import corpus

    page = f"/ui/sessions/{corpus.LONG}/"
    asked = {
        "first paint": "",
        "the end": "?from=end",
        "errors only": "?errors=1",
        "a common word": "?q=everywhere",
        "a rare word": "?q=needle",
        "a broad beginning": f"?q={corpus.BEGINNING}*",
    }
    return {f"100,000 events: {name}": page + query for name, query in asked.items()}


def admin() -> dict[str, str]:
    """Return the admin's lists of big tables."""
    table = "/admin/coordinator/{}/?{}"
    asked = {
        "events": table.format("event", ""),
        "events of a type": table.format("event", "event_type=message"),
        "events of no known type": table.format("event", "event_type=~other"),
        "events, a tool": table.format("event", "q=Grep"),
        "events, no such id": table.format("event", "q=ses_nothing"),
        "events, page 100": table.format("event", "p=100"),
        "contexts": table.format("eventcontext", ""),
        "contexts of another source": table.format("eventcontext", "source=otlp"),
        "contexts, no such id": table.format("eventcontext", "q=nothing"),
        "sessions": table.format("session", ""),
        "sessions, a word": table.format("session", "q=agent-3"),
        "sessions, no such word": table.format("session", "q=nothing"),
        "sessions of a week": table.format("session", "created_at_within=week"),
        "runs": table.format("run", ""),
        "audit": table.format("auditlog", ""),
        "audit, a word": table.format("auditlog", "q=nothing"),
        "changes": table.format("change", ""),
    }
    return {f"admin: {name}": path for name, path in asked.items()}


if __name__ == "__main__":
    main()
