"""The child's side: takes jobs from its standard input, one by one, and answers each on its standard output.

Started by process.py with `python -I`. A module of jobs has `JOBS`, name → function of a frame that returns the
answer's frame. It imports nothing of ours that knows Django, settings or data.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from functools import partial

from coordinator.sandbox import frames
from coordinator.sandbox.limits import Limits, OutOfTime, confine, isolate, job_timers

Job = Callable[[dict[str, object], bytes], frames.Frame]
MOST_BYTES = 64 * 1024 * 1024  # of one job's data

DONE, OVER, FAILED = "done", "over", "failed"


def main(module: str, limits: Limits) -> None:
    """Confine this process, then answer the jobs of `module` (its JOBS, by name) on stdin until that is closed."""
    jobs: Mapping[str, Job] = importlib.import_module(module).JOBS
    confine(limits)
    _send(frames.packed({"status": DONE}))  # ready
    while (frame := frames.read(partial(os.read, 0), most=MOST_BYTES)) is not None:
        if limits.fork_each:
            _answer_in_a_fork(jobs, limits, frame)
        else:
            _send(_answer(jobs, limits, frame))


def _answer_in_a_fork(jobs: Mapping[str, Job], limits: Limits, frame: frames.Frame) -> None:
    child = os.fork()
    if child == 0:
        isolate(reading=False)  # the next job is not for this one
        _send(_answer(jobs, limits, frame))
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if status != 0:
        _send(frames.packed({"status": OVER, "ticket": frame[0].get("ticket")}))


def _answer(jobs: Mapping[str, Job], limits: Limits, frame: frames.Frame) -> bytes:
    """Return the answer to a job as a frame; whatever it raises becomes OVER or FAILED."""
    facts, body = frame
    ticket = facts.pop("ticket", None)
    try:
        with job_timers(limits):
            told, made = jobs[str(facts["job"])](facts, body)
            return frames.packed({**told, "status": DONE, "ticket": ticket}, made)
    except (OutOfTime, MemoryError, RecursionError):
        return frames.packed({"status": OVER, "ticket": ticket})
    except Exception as problem:
        return frames.packed({"status": FAILED, "ticket": ticket, "detail": type(problem).__name__})


def _send(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]
