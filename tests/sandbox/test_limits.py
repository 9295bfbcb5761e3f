"""What a job in the sandbox may use up, and that its end costs one answer and nothing else."""

from __future__ import annotations

import os
import resource
import signal
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator.sandbox import LimitsExceeded, Overloaded, ProcessLimits, Sandbox, system_calls
from tests.patience import PATIENCE

MEMORY = 512 * 1024 * 1024


def sandbox(*, fork_each: bool) -> Sandbox:
    return Sandbox("tests.sandbox.jobs", ProcessLimits(0.3, 2, MEMORY, fork_each=fork_each), most_waiting=4)


@pytest.fixture(params=[False, True], ids=["one process", "a process for each job"])
def box(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    made = sandbox(fork_each=request.param)
    yield made
    made.close()


@pytest.fixture
def open_to_all() -> Iterator[Path]:
    """Return a folder in which any user may do anything: only the sandbox can refuse it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o777)
        yield folder


def test_a_job_gets_bytes_and_answers_bytes(box):
    answer = box.run_sandbox_job("echo", b"abc", say="hello")
    assert (answer.facts, answer.body) == ({"said": "hello"}, b"cba")


@pytest.mark.parametrize("job", ["spin", "doze", "eat", "crash"])
def test_a_job_that_goes_wrong_is_ended_and_the_next_one_is_done(box, job):
    with pytest.raises(LimitsExceeded):
        box.run_sandbox_job(job)
    assert box.run_sandbox_job("echo", b"abc").body == b"cba"


def test_an_endless_job_gets_no_more_time_than_its_limit():
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    box = sandbox(fork_each=False)
    with pytest.raises(LimitsExceeded):
        box.run_sandbox_job("spin")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert 0.25 < after.ru_utime - before.ru_utime < 1.5


def test_a_regular_expression_can_be_interrupted_without_ending_the_process(box):
    assert box.run_sandbox_job("backtrack").facts["stopped"] is True


def test_a_job_sees_no_file_no_network_no_environment_and_starts_nothing(box, open_to_all):
    secret = open_to_all / "secret_key"
    secret.write_text("x")
    secret.chmod(0o666)
    with socket.create_server(("127.0.0.1", 0)) as server:
        seen = box.run_sandbox_job(
            "look_around", path=str(secret), port=server.getsockname()[1], server=os.getpid()
        ).facts
    assert (seen["worked"], seen["cwd"]) == ([], "/")
    assert set(seen["env"]) <= {"LC_CTYPE"}  # Python's own


def test_a_picture_cannot_read_the_next_one():
    box = sandbox(fork_each=True)
    assert box.run_sandbox_job("read_on").facts == {"worked": False}


@pytest.mark.parametrize(
    ("where", "value"),
    [("sys.platform", "darwin"), ("platform.machine", lambda: "riscv64"), ("sys.maxsize", 2**31 - 1)],
)
def test_where_the_system_cannot_refuse_calls_jobs_are_done_without(monkeypatch, where, value):
    assert system_calls.is_seccomp_available()
    monkeypatch.setattr(f"coordinator.sandbox.system_calls.{where}", value)
    assert not system_calls.is_seccomp_available()
    system_calls.allow_only_computing_system_calls(reading=True)
    assert os.stat("/")  # this process still may


def test_an_answer_that_was_not_asked_for_is_nobodys(box):
    for _ in range(3):
        with pytest.raises(Overloaded):
            box.run_sandbox_job("say_more")
        assert box.run_sandbox_job("echo", b"abc", say="hello").facts == {"said": "hello"}


def test_a_child_that_was_killed_is_started_again(box):
    box.run_sandbox_job("echo")
    os.kill(box.child_pid, signal.SIGKILL)
    with pytest.raises(LimitsExceeded):
        box.run_sandbox_job("echo")
    assert box.run_sandbox_job("echo", b"ab").body == b"ba"


def test_jobs_beyond_those_that_may_wait_are_refused_at_once(box):
    for _ in range(4):
        box.submit_sandbox_job("doze")
    with pytest.raises(Overloaded):  # the first may be at work already
        [box.submit_sandbox_job("doze"), box.submit_sandbox_job("doze")]


def test_a_sandbox_that_cannot_be_started_refuses_its_jobs():
    with pytest.raises(Overloaded):
        Sandbox("tests.sandbox.missing", ProcessLimits(1, 1, MEMORY)).run_sandbox_job("echo")


def test_the_child_ends_when_its_server_is_gone():
    box = sandbox(fork_each=False)
    box.run_sandbox_job("echo")
    assert box._child is not None
    box._child.socket.close()  # as the kernel does for a server that was killed
    assert box._child.process.wait(PATIENCE) == 0
