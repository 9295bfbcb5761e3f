"""`python -m tests.bench.pages`: how long the server takes for each page, with the demo's week in the database.

Starts a server of its own with one worker, follows links from the first page to one address of every page, asks for
each of them ROUNDS times as an administrator, one after another, and prints one Markdown table, slowest first.
"""

from __future__ import annotations

import argparse
import logging
import os
import statistics
import tempfile
from pathlib import Path

import django
import httpx

from tests.served import Template, manage, running
from tests.walk.crawl import pages_from

ROUNDS = 15


def main() -> None:
    """Measure, and print the table."""
    argparse.ArgumentParser(
        prog="python -m tests.bench.pages",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    ).parse_args()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    django.setup()  # to know pages by their routes
    logging.getLogger("httpx").setLevel(logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        template = Template(Path(folder) / "template")
        with running(template, Path(folder) / "server", workers=1) as served:
            manage("demo", "--anyway", "--verbosity=0", env=served.env)
            client = served.sign_in("admin")
            took = {place: milliseconds(client, place) for place in pages_from(client, "/ui/", "/admin/")}
        template.drop()
    print("| page | p50 ms | max ms |\n|---|---:|---:|")
    for place, times in sorted(took.items(), key=lambda one: -statistics.median(one[1])):
        print(f"| `{place}` | {statistics.median(times):.1f} | {max(times):.1f} |")
    medians = [statistics.median(times) for times in took.values()]
    middle, slowest = statistics.median(medians), max(medians)
    print(f"\n{len(took)} pages; the middle one {middle:.1f} ms, the slowest {slowest:.1f} ms (p50).")


def milliseconds(client: httpx.Client, place: str) -> list[float]:
    """Return what each of ROUNDS answers took after a warm-up; where an address leads to another, the last one."""
    client.get(place)
    times = []
    for _ in range(ROUNDS):
        answer = client.get(place)
        times.append(answer.elapsed.total_seconds() * 1000)
        assert answer.status_code == 200, f"{place} answered {answer.status_code}"
    return times


if __name__ == "__main__":
    main()
