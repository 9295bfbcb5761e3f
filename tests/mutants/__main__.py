"""`python -m tests.mutants [--workers N] [WORD …]`: seed each fault into a copy of the tree and run its tests.

Prints whether each fault was killed; exits with 1 where one survived, or its tests could not be run. With words only
faults whose name or file contains one of them. The tree itself is not touched. Faults whose tests start no other
program are tried in forks of one process (tests/mutants/forking.py), the others by a run of pytest each.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.mutants.table import MUTANTS, Mutant

ROOT = Path(__file__).resolve().parent.parent.parent
# Without what takes long to load, and on a database that stays.
OPTIONS = (
    *("-q", "-x", "-n", "0", "-p", "no:cacheprovider", "-p", "no:hypothesispytest"),
    *("--reuse-db", "--ds=tests.mutants.settings"),
)
TESTS_TIMEOUT_SECONDS = 420.0
PASSED, FAILED = 0, 1  # pytest's exit codes
OTHER_PROGRAMS = ("pytest.mark.served", "subprocess.")  # in the tests that start some


def copy_tree(target: Path) -> Path:
    """Copy the files that git knows, and new ones that it does not ignore."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    for name in listed.stdout.decode().split("\0"):
        source = ROOT / name
        if name and source.is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target / name)
    return target


def starts_programs(mutant: Mutant) -> bool:
    """Say whether a fault's tests start other programs, which load the code from its files."""
    files = {test.partition("::")[0] for test in mutant.tests}
    texts = [(ROOT / file).read_text() for file in files]
    return any(
        file.startswith("tests/client/") or word in text
        for file, text in zip(files, texts, strict=True)
        for word in OTHER_PROGRAMS
    )


def run_pytest(tree: Path, arguments: Sequence[str], timeout: float, **variables: str) -> tuple[int, str]:
    """Run pytest in a copy; return its exit code and the end of what it printed. A time-out is a failure."""
    variables |= {"PYTHONDONTWRITEBYTECODE": "1", "MUTANTS_DATABASE": str(tree.with_suffix(".sqlite3"))}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *OPTIONS, *arguments],
            cwd=tree,
            env=os.environ | variables,
            check=False,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
    except subprocess.TimeoutExpired:
        return FAILED, "It took too long."
    return done.returncode, (done.stdout + done.stderr)[-2_000:]


def try_in_forks(tree: Path, mutants: Sequence[Mutant]) -> list[tuple[Mutant, int, str]]:
    """Return the faults that tests in forks of one process kill, with pytest's exit code.

    The others are tried alone: a fork does not change what a decorator has already made of a function.
    """
    if not mutants:
        return []
    outcomes = tree.with_suffix(".outcomes")
    files = sorted({test.partition("::")[0] for mutant in mutants for test in mutant.tests})
    names = json.dumps([mutant.name for mutant in mutants])
    timeout = TESTS_TIMEOUT_SECONDS * len(mutants)
    arguments = ("-p", "tests.mutants.forking", *files)
    run_pytest(tree, arguments, timeout, MUTANTS_TRIED=names, MUTANTS_OUTCOMES=str(outcomes))
    lines = outcomes.read_text().splitlines() if outcomes.exists() else []
    codes = {name: (code, seconds) for name, code, seconds in map(json.loads, lines)}
    killed = [mutant for mutant in mutants if codes.get(mutant.name, (None,))[0] == FAILED]
    for mutant in killed:
        report(mutant, *codes[mutant.name])
    return [(mutant, FAILED, "") for mutant in killed]


def try_alone(trees: queue.Queue[Path], mutant: Mutant) -> tuple[Mutant, int, str]:
    """Return pytest's exit code for a fault that is written into a copy, and the end of what it printed."""
    tree = trees.get()
    try:
        path = tree / mutant.file
        text = path.read_text()
        path.write_text(text.replace(mutant.before, mutant.after, 1))
        began = time.monotonic()
        code, words = run_pytest(tree, mutant.tests, TESTS_TIMEOUT_SECONDS)
        path.write_text(text)
    finally:
        trees.put(tree)
    report(mutant, code, time.monotonic() - began)
    return mutant, code, words


def report(mutant: Mutant, code: int, seconds: float) -> None:
    """Print what became of a fault."""
    outcome = {PASSED: "SURVIVED", FAILED: "killed"}.get(code, "BROKEN")
    print(f"{outcome:8} {mutant.name} ({seconds:.0f} s)", flush=True)  # noqa: T201


def main(arguments: Sequence[str]) -> int:
    """Return 0 where every fault was killed."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("--workers", type=int, default=2, help="copies of the tree that are tested at once")
    parser.add_argument("words", nargs="*", help="only faults whose name or file contains one of these")
    options = parser.parse_args(arguments)
    chosen = [
        mutant
        for mutant in MUTANTS
        if not options.words or any(word in f"{mutant.file} {mutant.name}" for word in options.words)
    ]
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        trees: queue.Queue[Path] = queue.Queue()
        for number in range(options.workers):
            trees.put(copy_tree(Path(folder) / str(number)))
        forkable = [mutant for mutant in chosen if not starts_programs(mutant)]
        results = try_in_forks(copy_tree(Path(folder) / "forks"), forkable)
        tried = {mutant.name for mutant, _, _ in results}
        alone = [mutant for mutant in chosen if mutant.name not in tried]
        with ThreadPoolExecutor(options.workers) as pool:
            results += pool.map(lambda mutant: try_alone(trees, mutant), alone)
    for mutant, code, words in results:
        if code not in {PASSED, FAILED}:
            print(f"\n{mutant.name}: the tests cannot be run ({code})\n{words}")  # noqa: T201
    killed = sum(code == FAILED for _, code, _ in results)
    print(f"{killed} of {len(results)} killed")  # noqa: T201
    return 0 if killed == len(results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
