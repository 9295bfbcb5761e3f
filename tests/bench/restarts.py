"""Thirty restarts on a busy machine: does a runner as impatient as the real one live through them all?

    python -m tests.bench.restarts --url http://127.0.0.1:8765 --key sbx_… --restart 'kill -HUP 4711'

Starts runners of the oldest and the newest form, each of which ends after three polls that failed within 3 s, keeps
as many processes busy as `--load` says, and restarts the server as the given command does, `--times` times. Between
two restarts it waits until a run that it ordered has completed. Prints one Markdown row a restart: how long the run
took, the polls that failed so far, and the runners that gave up. Exits with 1 if one did.
"""

from __future__ import annotations

import argparse
import multiprocessing
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack

import httpx

from tests.impatient_runner import ImpatientRunner

WITHIN = 120.0  # seconds for one run, from its order to its end, through a restart


def burn() -> None:
    """Keep a core busy."""
    while True:
        sum(range(100_000))


def completed(client: httpx.Client, deadline: float) -> bool:
    """Order a run and see it completed; asked again while the server is not there."""
    run_id = ""
    while time.monotonic() < deadline:
        try:
            if not run_id:
                body = {"type": "start_session", "prompt": "through a restart"}
                run_id = client.post("/runs", json=body).raise_for_status().json()["run_id"]
            if client.get(f"/runs/{run_id}").raise_for_status().json()["status"] == "completed":
                return True
        except httpx.HTTPError:
            pass
        time.sleep(0.1)
    return False


def main() -> int:
    """Restart, look, tell."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--url", default="http://127.0.0.1:8765")
    parser.add_argument("--key", required=True, help="a key with the scopes runner and operator")
    parser.add_argument("--restart", required=True, help="a shell command that restarts the server")
    parser.add_argument("--times", type=int, default=30)
    parser.add_argument("--load", type=int, default=8, help="processes that keep a core busy")
    parser.add_argument("--runners", type=int, default=4)
    parser.add_argument(
        "--pause", type=float, default=2.0, help="seconds from one restart to the next, at least"
    )
    given = parser.parse_args()
    burners = [multiprocessing.Process(target=burn, daemon=True) for _ in range(given.load)]
    for burner in burners:
        burner.start()
    client = httpx.Client(base_url=given.url, headers={"Authorization": f"Bearer {given.key}"}, timeout=40)
    print("| restart | run completed after s | failed polls | runners lost |\n|---:|---:|---:|---:|")
    with ExitStack() as fleet:
        runners = [
            fleet.enter_context(
                ImpatientRunner(given.url, given.key, hostname=f"host-{n}", newest=n % 2 == 1)
            )
            for n in range(given.runners)
        ]
        all_done = True
        for number in range(1, given.times + 1):
            began = time.monotonic()
            subprocess.run(given.restart, shell=True, check=True)
            done = completed(client, began + WITHIN)
            took = time.monotonic() - began
            all_done = all_done and done
            failed = sum(len(runner.failed) for runner in runners)
            lost = sum(runner.gave_up for runner in runners)
            print(f"| {number} | {took:.1f}{'' if done else ' (never)'} | {failed} | {lost} |", flush=True)
            time.sleep(max(0.0, given.pause - took))
        lost = sum(runner.gave_up for runner in runners)
    for burner in burners:
        burner.kill()
    print(f"\n{given.times} restarts, {given.runners} runners, {lost} lost.")
    for problem, times in Counter(problem for runner in runners for problem in runner.failed).most_common():
        print(f"{times} polls failed with {problem}")
    return 0 if not lost and all_done else 1


if __name__ == "__main__":
    sys.exit(main())
