"""`python -m tests.mutants [--workers N] [WORD …]`: seed each fault into a copy of the tree and run its tests.

Prints whether each fault was killed; exits with 1 where one survived, or its tests could not be run. With words only
faults whose name or file contains one of them. The tree itself is not touched.
"""

from __future__ import annotations

import argparse
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


def run_tests(tree: Path, tests: Sequence[str]) -> tuple[int, str]:
    """Run tests in a copy; return pytest's exit code and the end of what it printed. A time-out is a failure."""
    command = [sys.executable, "-m", "pytest", *OPTIONS, *tests]
    database = str(tree.with_suffix(".sqlite3"))
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1", "MUTANTS_DATABASE": database}
    try:
        done = subprocess.run(
            command,
            cwd=tree,
            env=environment,
            check=False,
            capture_output=True,
            text=True,
            timeout=TESTS_TIMEOUT_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return FAILED, "It took too long."
    return done.returncode, (done.stdout + done.stderr)[-2_000:]


def seed(tree: Path, mutant: Mutant) -> str:
    """Write the fault into a copy; return the file's text before."""
    path = tree / mutant.file
    text = path.read_text()
    path.write_text(text.replace(mutant.before, mutant.after, 1))
    return text


def try_mutant(trees: queue.Queue[Path], mutant: Mutant) -> tuple[Mutant, str, str]:
    """Return what became of one fault: killed, SURVIVED or BROKEN, with pytest's words for the latter."""
    tree = trees.get()
    try:
        text = seed(tree, mutant)
        began = time.monotonic()
        code, words = run_tests(tree, mutant.tests)
        (tree / mutant.file).write_text(text)
    finally:
        trees.put(tree)
    outcome = {PASSED: "SURVIVED", FAILED: "killed"}.get(code, "BROKEN")
    print(f"{outcome:8} {mutant.name} ({time.monotonic() - began:.0f} s)", flush=True)  # noqa: T201
    return mutant, outcome, words


def main(arguments: Sequence[str]) -> int:
    """Return 0 where every fault was killed."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
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
        with ThreadPoolExecutor(options.workers) as pool:
            results = list(pool.map(lambda mutant: try_mutant(trees, mutant), chosen))
    for mutant, outcome, words in results:
        if outcome == "BROKEN":
            print(f"\n{mutant.name}: the tests cannot be run\n{words}")  # noqa: T201
    killed = sum(outcome == "killed" for _, outcome, _ in results)
    print(f"{killed} of {len(results)} killed")  # noqa: T201
    return 0 if killed == len(results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
