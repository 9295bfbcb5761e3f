"""What a child process may use. Set by the child on itself before it reads the first job."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from coordinator.sandbox.system_calls import allow_only_computing_system_calls

NOBODY = 65534  # the user and group that own nothing, on every system that has them


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """Limits of one child process.

    `cpu_seconds` and `wall_seconds` are for each job; the kernel ends the process at either. `memory_bytes` is all
    address space. With `fork_each` every job has a process of its own, so that nothing is left of one when the next
    begins.
    """

    cpu_seconds: float
    wall_seconds: float
    memory_bytes: int
    fork_each: bool = False


class JobTimeout(BaseException):
    """The time that `limit_cpu_time_during_block` gave is used up. No `except Exception` of a library swallows it."""


def confine_process(limits: ProcessLimits) -> None:
    """Give up privileges, priority, files and memory beyond `limits`, for good.

    Limits that the system does not have are left out.
    """
    os.nice(5)  # pages go first
    drop_privileges()
    set_resource_limit(resource.RLIMIT_CORE, 0)
    set_resource_limit(resource.RLIMIT_FSIZE, 0)
    set_resource_limit(resource.RLIMIT_AS, limits.memory_bytes)
    set_resource_limit(resource.RLIMIT_NOFILE, find_highest_open_descriptor() + 1)
    if not limits.fork_each:
        forbid_processes_files_and_network(reading=True)


def forbid_processes_files_and_network(*, reading: bool) -> None:
    """Have the kernel refuse new processes, files and connections from here on; what is open is read if `reading`."""
    set_resource_limit(resource.RLIMIT_NPROC, 0)
    allow_only_computing_system_calls(reading=reading)


def drop_privileges() -> None:
    if os.getuid() == 0:
        with contextlib.suppress(OSError):  # a container may know of no other user
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)


def set_resource_limit(resource_kind: int, value: int) -> None:
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource_kind, (value, value))


def find_highest_open_descriptor() -> int:
    return max(number for number in range(256) if is_file_descriptor_open(number))


def is_file_descriptor_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


@contextmanager
def enforce_job_timeout_during_block(limits: ProcessLimits) -> Iterator[None]:
    """Have the kernel end this process where the block takes longer than `limits`: its signals are not caught."""
    signal.setitimer(signal.ITIMER_VIRTUAL, limits.cpu_seconds)
    signal.setitimer(signal.ITIMER_REAL, limits.wall_seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)


@contextmanager
def limit_cpu_time_during_block(cpu_seconds: float) -> Iterator[None]:
    """Raise JobTimeout in the block after that much processor time, or sooner where an outer block has less left.

    Python code is interrupted between its steps. A library that does not come back is ended by
    `enforce_job_timeout_during_block`.
    """

    def raise_job_timeout(_signal: int, _frame: object) -> None:
        raise JobTimeout

    signal.signal(signal.SIGPROF, raise_job_timeout)
    outer = signal.setitimer(signal.ITIMER_PROF, 0)[0]
    seconds_left = min(cpu_seconds, outer) if outer else cpu_seconds
    signal.setitimer(signal.ITIMER_PROF, seconds_left)
    try:
        yield
    finally:
        used = seconds_left - signal.setitimer(signal.ITIMER_PROF, 0)[0]
        if outer:
            signal.setitimer(signal.ITIMER_PROF, max(outer - used, 0.001))
