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
from coordinator.sandbox.limits import (
    JobTimeout,
    ProcessLimits,
    confine_process,
    enforce_job_timeout_during_block,
    forbid_processes_files_and_network,
)

Job = Callable[[dict[str, object], bytes], frames.Frame]
MOST_BYTES = 64 * 1024 * 1024  # of one job's data

DONE, OVER, FAILED = "done", "over", "failed"


def confine_process_and_serve_jobs(module: str, limits: ProcessLimits) -> None:
    """Confine this process, then answer the jobs of `module` (its JOBS, by name) on stdin until that is closed."""
    jobs: Mapping[str, Job] = importlib.import_module(module).JOBS
    confine_process(limits)
    write_to_stdout(frames.pack_frame({"status": DONE}))  # ready
    while (frame := frames.read_frame(partial(os.read, 0), most=MOST_BYTES)) is not None:
        if limits.fork_each:
            answer_sandbox_job_in_fork(jobs, limits, frame)
        else:
            write_to_stdout(run_job_and_pack_answer(jobs, limits, frame))


def answer_sandbox_job_in_fork(jobs: Mapping[str, Job], limits: ProcessLimits, frame: frames.Frame) -> None:
    child = os.fork()
    if child == 0:
        forbid_processes_files_and_network(reading=False)  # the next job is not for this one
        write_to_stdout(run_job_and_pack_answer(jobs, limits, frame))
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if status != 0:
        write_to_stdout(frames.pack_frame({"status": OVER, "ticket": frame[0].get("ticket")}))


def run_job_and_pack_answer(jobs: Mapping[str, Job], limits: ProcessLimits, frame: frames.Frame) -> bytes:
    """Return the answer to a job as a frame; whatever it raises becomes OVER or FAILED."""
    facts, body = frame
    ticket = facts.pop("ticket", None)
    try:
        with enforce_job_timeout_during_block(limits):
            answer_facts, answer_body = jobs[str(facts["job"])](facts, body)
            return frames.pack_frame({**answer_facts, "status": DONE, "ticket": ticket}, answer_body)
    except (JobTimeout, MemoryError, RecursionError):
        return frames.pack_frame({"status": OVER, "ticket": ticket})
    except Exception as problem:
        return frames.pack_frame({"status": FAILED, "ticket": ticket, "detail": type(problem).__name__})


def write_to_stdout(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]
