"""Refuses every system call but those that computing needs: no files, no sockets, no processes, no signals to others.

Limits of resources do not do that: code that runs in the child could close a descriptor to open a file in its place,
and removing a file or ending the server needs no descriptor at all. This is Linux's seccomp: a program for the
kernel's packet filter (BPF) that sees the number of each call. Whatever it does not name fails with EPERM.
See seccomp(2) and the kernel's Documentation/userspace-api/seccomp_filter.rst.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import struct
import sys

# Name → number on x86-64 (asm/unistd_64.h) and on 64-bit ARM (asm-generic/unistd.h); None: it has no such call.
_READING = {"read": (0, 63), "readv": (19, 65)}
_COMPUTING: dict[str, tuple[int, int | None]] = {
    # answer, with what is open already
    "write": (1, 64),
    "writev": (20, 66),
    "close": (3, 57),
    "fstat": (5, 80),
    "lseek": (8, 62),
    # memory
    "mmap": (9, 222),
    "mprotect": (10, 226),
    "munmap": (11, 215),
    "brk": (12, 214),
    "mremap": (25, 216),
    "madvise": (28, 233),
    # this process's own signals and timers: `within` and `job_timers`
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "sigaltstack": (131, 132),
    "getitimer": (36, 102),
    "setitimer": (38, 103),
    "restart_syscall": (219, 128),
    # time, chance, locks; facts about this process
    "time": (201, None),
    "gettimeofday": (96, 169),
    "clock_gettime": (228, 113),
    "clock_getres": (229, 114),
    "nanosleep": (35, 101),
    "clock_nanosleep": (230, 115),
    "sched_yield": (24, 124),
    "futex": (202, 98),
    "getrandom": (318, 278),
    "getpid": (39, 172),
    "gettid": (186, 178),
    "getcwd": (79, 17),
    "getrusage": (98, 165),
    "sysinfo": (99, 179),
    # the end
    "exit": (60, 93),
    "exit_group": (231, 94),
}
# platform.machine() → linux/audit.h's name of the calling convention, and the column above.
_MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}

# linux/prctl.h, linux/seccomp.h and linux/bpf_common.h
_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 22, 38
_MODE_FILTER = 2
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | errno.EPERM
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_CALL_NUMBER, _CALL_CONVENTION = 0, 4  # offsets in struct seccomp_data


class FilterProgram(ctypes.Structure):
    """linux/filter.h's sock_fprog."""

    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p)]


def is_seccomp_available() -> bool:
    """Say whether this system can refuse calls: a 64-bit Linux on a known machine, with seccomp."""
    if not sys.platform.startswith("linux") or sys.maxsize < 2**32 or platform.machine() not in _MACHINES:
        return False
    # A kernel that has filters tries to read the missing one; others do not know what is asked.
    return call_prctl_and_return_errno(_PR_SET_SECCOMP, _MODE_FILTER) == errno.EFAULT


def allow_only_computing_system_calls(*, reading: bool) -> None:
    """Have this process make only the calls above from here on, which nothing takes back.

    With `reading` it can still read what is open. Does nothing where the system cannot; raises OSError where it can
    but does not. The process must have one thread.
    """
    if not is_seccomp_available():
        return
    convention, column = _MACHINES[platform.machine()]
    calls = _COMPUTING | _READING if reading else _COMPUTING
    numbers = [number for both in calls.values() if (number := both[column]) is not None]
    instructions = build_seccomp_allowlist_program(convention, numbers)
    program = FilterProgram(len(instructions) // 8, instructions)
    for option, first, second in (
        (_PR_SET_NO_NEW_PRIVS, 1, 0),  # without it, only root may filter
        (_PR_SET_SECCOMP, _MODE_FILTER, ctypes.addressof(program)),
    ):
        if problem := call_prctl_and_return_errno(option, first, second):
            raise OSError(problem, "The system does not refuse system calls")


def call_prctl_and_return_errno(option: int, first: int, second: int = 0) -> int:
    """Call prctl(2); return 0 or the error's number."""
    arguments = [ctypes.c_ulong(value) for value in (first, second, 0, 0)]
    libc = ctypes.CDLL(None, use_errno=True)
    return 0 if libc.prctl(option, *arguments) == 0 else ctypes.get_errno()


def build_seccomp_allowlist_program(convention: int, allowed: list[int]) -> bytes:
    """Return the program: of another convention, refuse; one of `allowed`, allow; else refuse.

    A jump's distances count the instructions that are passed over, when equal and when not.
    """
    count = len(allowed)
    return b"".join(
        [
            build_seccomp_filter_instruction(_LOAD, _CALL_CONVENTION),
            build_seccomp_filter_instruction(_JUMP_IF_EQUAL, convention, not_equal=count + 1),
            build_seccomp_filter_instruction(_LOAD, _CALL_NUMBER),
            *(
                build_seccomp_filter_instruction(_JUMP_IF_EQUAL, number, equal=count - place)
                for place, number in enumerate(allowed)
            ),
            build_seccomp_filter_instruction(_RETURN, _REFUSE),
            build_seccomp_filter_instruction(_RETURN, _ALLOW),
        ]
    )


def build_seccomp_filter_instruction(code: int, value: int, *, equal: int = 0, not_equal: int = 0) -> bytes:
    return struct.pack("=HBBI", code, equal, not_equal, value)
