"""How long the description of a call takes, beside `shlex.split` of the same text.

    python -m tests.bench.describing

Processor time of one thread, so that other work on the machine counts little. Each text is read anew: the cache that
the program has for texts it has read before is left out.
"""

from __future__ import annotations

import contextlib
import shlex
import time
from collections.abc import Callable
from statistics import quantiles

from coordinator.calls.descriptions import (
    iterate_command_address_uses,
    iterate_command_path_uses,
    parse_shell_text_without_raising,
)

PLAIN = "cd /srv/shop && NODE_ENV=test pnpm exec playwright test tests/cart.spec.ts --project=web 2>&1 | tail -20\n"
NESTED = "sudo -u bob env A=1 timeout 10 bash -lc 'git -C /srv push && find . -name \"*.py\" -exec rm {} +' > out.txt\n"
TEXTS = {
    "a usual command (40 bytes)": "git diff --stat HEAD~3 -- src | head -20",
    "a script of 2 kB": (PLAIN * 20)[:2000].rsplit("\n", 1)[0],
    "2 kB of shells that start shells": (NESTED * 20)[:2000].rsplit("\n", 1)[0],
    "a script of 16 kB": (PLAIN * 160)[:16_000].rsplit("\n", 1)[0],
    "hostile: 60 kB of `<<`": "<<" * 30_000,
    "hostile: 60 kB of `$(`": "$(" * 30_000,
    "hostile: 60 kB of quotes": "'" * 60_001,
    "hostile: 60 kB of commands": "x;" * 30_000,
    "hostile: 1 MB": "ls;" * 333_333,
}


def describe_shell_text(text: str) -> None:
    commands, _ = parse_shell_text_without_raising(text, "/srv/shop")
    for command in commands:
        list(iterate_command_path_uses(command))
        list(iterate_command_address_uses(command))


def split_words(text: str) -> None:
    with contextlib.suppress(ValueError):
        shlex.split(text)


def measure_milliseconds(work: Callable[[str], None], text: str, seconds: float = 2.0) -> tuple[float, float]:
    """Return the middle and the 99th percentile of what `work` takes."""
    found: list[float] = []
    until = time.thread_time() + seconds
    while len(found) < 20 or (time.thread_time() < until and len(found) < 5_000):
        began = time.thread_time()
        work(text)
        found.append((time.thread_time() - began) * 1000)
    cuts = quantiles(found, n=100, method="inclusive")
    return cuts[49], cuts[98]


def main() -> None:
    print("| text | p50 ms | p99 ms | `shlex.split` p50 ms |\n|---|---:|---:|---:|")
    for name, text in TEXTS.items():
        middle, slow = measure_milliseconds(describe_shell_text, text)
        peer, _ = measure_milliseconds(split_words, text, 0.5)
        print(f"| {name} | {middle:.2f} | {slow:.2f} | {peer:.2f} |")


if __name__ == "__main__":
    main()
