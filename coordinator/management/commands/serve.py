"""`manage.py serve`: migrate, prepare static files, and run the server until it is told to stop.

gunicorn runs the workers. Its main process loads the code once and forks the workers, which share that memory. It can
therefore not load newer code by itself, and so SIGHUP (`signalbox manage restart`, `systemctl reload`) does this:

1. The newer code is tried in a process of its own (`serve --check`). Where it cannot be started, the old goes on.
2. The main process becomes the newer program by exec: its process id, terminal, sockets and lock stay, and so do the
   old workers, which answer meanwhile.
3. When the new workers answer, the old ones are told to stop. Held requests are answered by then, and ask again.

Where the database must be migrated, the old workers stop before step 2, and requests wait until step 3.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import IO, Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import connections
from django.urls import get_resolver, reverse
from django.utils import timezone
from gunicorn import arbiter, glogging
from gunicorn.app.base import BaseApplication

from coordinator.actions.people import setup
from coordinator.engine import pooling
from coordinator.lib import listening_sockets
from coordinator.lib import worker_metrics as figures
from coordinator.mcp.hosting import keeper_process
from coordinator.operations import restarting, startup
from coordinator.operations.doctor import shared_user
from coordinator.operations.doctor.settings import iterate_conflicting_settings_checks

IF_IT_RUNS = (
    "`signalbox manage restart` restarts it. Stop it to start another, or choose another SIGNALBOX_DATA_DIR."
)
MUST_MIGRATE = 3  # exit status of `serve --check`; an older version may ask a newer one
FORMER_END_WITHIN_SECONDS = 15  # the keeper of MCP servers takes up to 12
STOP_SIGNALS = {signal.SIGTERM, signal.SIGINT, signal.SIGQUIT}


class Command(BaseCommand):
    """Runs Signalbox on one address, with as many workers as the machine has use for."""

    help = "Run Signalbox: migrates the database, prepares static files, serves until Ctrl-C."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--workers",
            type=int,
            default=settings.WORKERS,
            help="worker processes (0: chosen from the number of cores)",
        )
        parser.add_argument("--threads", type=int, default=settings.THREADS, help="Django threads per worker")
        parser.add_argument("--no-migrate", action="store_true", help="do not migrate the database")
        parser.add_argument(
            "--migrate-anyway",
            action="store_true",
            help="migrate even if running servers of an older version cannot go on with the new schema",
        )
        parser.add_argument(
            "--check",
            action="store_true",
            help="only try whether this code starts here; exit status 3 says that it would migrate the database",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Prepare everything that can fail with a clear line, then become the server."""
        for check in iterate_conflicting_settings_checks():
            self.stderr.write(self.style.WARNING(f"{check.message} {check.remedy}"))
        if options["check"]:
            sys.exit(self.rehearse_server_start(migrate=not options["no_migrate"]))
        files = listening_sockets.open_or_inherit_serving_files()
        lock = startup.lock_data_folder(settings.DATA_DIR, files.lock, remedy=IF_IT_RUNS)
        if files.problem:
            raise CommandError(files.problem)
        require_sockets_at_configured_port(files.sockets)
        settings.THREADS = options["threads"]
        workers = options["workers"] or default_worker_count()
        run_in_child_or_exit(lambda: self.prepare_server_and_print_address(options, workers))
        preload_worker_code()
        GunicornServer(workers, files, lock).run()

    def rehearse_server_start(self, *, migrate: bool) -> int:
        """Do what a start does, beside a server that runs; return the exit status. Raises CommandError."""
        pending = startup.require_usable_and_check_migration(migrate=migrate, say=self.stdout.write)
        startup.collect_static_files_if_changed(say=self.stdout.write)
        preload_worker_code()
        importlib.import_module("coordinator.asgi")
        return MUST_MIGRATE if pending else 0

    def prepare_server_and_print_address(self, options: dict[str, Any], workers: int) -> None:
        """Migrate the database, collect static files, and print what people need to know."""
        startup.check_and_migrate_database(
            migrate=not options["no_migrate"], say=self.stdout.write, migrate_anyway=options["migrate_anyway"]
        )
        startup.collect_static_files_if_changed(say=self.stdout.write)
        figures.remove_all_worker_metrics()
        self.stdout.write(f"Signalbox is at {settings.PUBLIC_URL} ({workers} workers). Ctrl-C stops it.")
        if shared := shared_user.find_shared_user_problem(os.geteuid()):
            self.stdout.write(self.style.WARNING(f"{shared} {shared_user.REMEDY}"))
        if welcome := create_first_sign_in_message():
            self.stdout.write(f"Nobody can sign in yet. {welcome}")
        self.stdout.flush()


def run_in_child_or_exit(work: Callable[[], object]) -> None:
    """Do the work in a process of its own, whose memory is given back; exit as it does where it fails."""
    child = os.fork()
    if not child:
        work()
        connections.close_all()
        sys.stdout.flush()
        os._exit(0)  # what the parent prepared for its own end is not for this process
    try:
        _, status = os.waitpid(child, 0)
    except BaseException:  # told to stop
        os.kill(child, signal.SIGTERM)
        raise
    if code := os.waitstatus_to_exitcode(status):
        sys.exit(code if code > 0 else 128 - code)


def create_first_sign_in_message() -> str:
    """Say how the first administrator comes in, by a fresh one-time link as a rule; "" where somebody has."""
    if not setup.is_setup_open():
        return ""
    if not settings.PASSWORD_SIGN_IN:
        return setup.password_sign_in_off_notice()
    link = (
        f"{settings.PUBLIC_URL}{reverse('accounts:setup')}?token={setup.replace_setup_token(timezone.now())}"
    )
    return f"Create the first administrator here:\n  {link}"


def default_worker_count() -> int:
    """Return 2 to 4 worker processes: one per core, two at least, so that one may be busy."""
    return max(2, min(4, len(os.sched_getaffinity(0))))


def require_sockets_at_configured_port(files: list[int]) -> None:
    """Raise CommandError where the sockets that a service manager opened are not where the settings say."""
    for file in files:
        with socket.socket(fileno=os.dup(file)) as opened:
            host, port = opened.getsockname()[:2]
        if port != settings.BIND_PORT:
            raise CommandError(
                f"The service manager listens at {listening_sockets.join_host_port(host, port)} and SIGNALBOX_BIND "
                f"says {settings.BIND}. Run install_service again, or change the socket unit."
            )


def preload_worker_code() -> None:
    """Load the code once, before the workers are forked, so that each is ready at once and shares its memory.

    The application itself is made in each worker: it has threads.
    """
    importlib.import_module(settings.ROOT_URLCONF)
    importlib.import_module("coordinator.edge.app").get_or_create_django_handler()
    get_resolver().reverse_dict  # noqa: B018 - is made as it is read first, a megabyte in each worker


class ServerLog(glogging.Logger):  # type: ignore[misc] # gunicorn has no types
    def setup(self, cfg: Any) -> None:
        super().setup(cfg)
        self.error_log.handlers.clear()
        self.error_log.propagate = True


class GunicornArbiter(arbiter.Arbiter):  # type: ignore[misc] # gunicorn has no types
    """gunicorn's main process, which restarts with newer code on SIGHUP and keeps stdio MCP servers' keeper running."""

    def __init__(self, app: GunicornServer) -> None:
        super().__init__(app)
        self._keeper = keeper_process.KeeperProcess()
        self._lock = app.lock
        self._former = app.files.former
        self._former_end_by: float | None = (
            None  # on time.monotonic's clock; None until they are told to stop
        )

    def manage_workers(self) -> None:
        """Start what is missing; gunicorn calls this once a second and whenever a child has ended."""
        super().manage_workers()
        self._keeper.ensure_running()
        if self._former_end_by is None and all(map(has_worker_sent_first_heartbeat, self.WORKERS.values())):
            self._former_end_by = time.monotonic() + FORMER_END_WITHIN_SECONDS
            restarting.write_start_outcome_to_lock_file(self._lock, restarting.READY)
            self.signal_processes_of_previous_start(signal.SIGTERM)
        elif self._former and time.monotonic() > (self._former_end_by or float("inf")):
            self.signal_processes_of_previous_start(signal.SIGKILL)

    def signal_processes_of_previous_start(self, number: signal.Signals) -> None:
        """Send a signal to those workers and helpers of before the restart that still run."""
        self._former = [pid for pid in self._former if reap_child_and_check_running(pid)]
        for pid in self._former:
            os.kill(pid, number)

    def stop(self, graceful: bool = True) -> None:
        """Stop all workers, those of before the restart too."""
        self.signal_processes_of_previous_start(signal.SIGTERM)
        super().stop(graceful)

    def reload(self) -> None:
        """Become the code as it is now, if that can be started: gunicorn calls this on SIGHUP."""
        restarting.write_start_outcome_to_lock_file(self._lock, restarting.RESTARTING)
        status = self.run_check_for_exit_status()
        if status is None:  # told to stop meanwhile
            return
        if status not in (0, MUST_MIGRATE):
            sys.stderr.write("The new server did not start, so the old one goes on.\n")
            restarting.write_start_outcome_to_lock_file(self._lock, restarting.FAILED)
            return
        if status == MUST_MIGRATE:
            self.stop_workers()
        listening_sockets.ServingFiles(
            sockets=[listener.fileno() for listener in self.LISTENERS],
            lock=self._lock.fileno(),
            former=[*self.WORKERS, *self._keeper.process_ids(), *self._former],
        ).save_sockets_to_environment()
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # stays while the newer code is loaded
        sys.stdout.flush()
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - as this process was started

    def run_check_for_exit_status(self) -> int | None:
        """Return the exit status of `serve --check`, None where a signal to stop comes before that."""
        trial = subprocess.Popen([sys.executable, *sys.orig_argv[1:], "--check"])  # noqa: S603 - ours
        while (status := wait_for_exit_status_or_none(trial, seconds=0.1)) is None:
            received = []
            while not self.SIG_QUEUE.empty():
                received.append(self.SIG_QUEUE.get())
            for number in received:
                self.SIG_QUEUE.put(number)
            if STOP_SIGNALS & set(received):
                trial.terminate()
                trial.wait()
                break
        return status

    def stop_workers(self) -> None:
        """Stop all workers and wait for their end, because the database is about to be migrated."""
        self.kill_workers(signal.SIGTERM)
        end_by = time.monotonic() + 2 * settings.GRACEFUL_TIMEOUT
        while self.WORKERS and time.monotonic() < end_by:
            self.reap_workers()
            time.sleep(0.05)
        self.kill_workers(signal.SIGKILL)


def has_worker_sent_first_heartbeat(worker: Any) -> bool:
    """Say whether a worker's loop runs: its heartbeats are on time.monotonic's clock, its file's birth is not."""
    return bool(worker.tmp.last_update() <= time.monotonic())


def reap_child_and_check_running(pid: int) -> bool:
    """Say whether the process is a child of this one and has not ended."""
    try:
        return os.waitpid(pid, os.WNOHANG) == (0, 0)
    except ChildProcessError:
        return False


def wait_for_exit_status_or_none(process: subprocess.Popen[bytes], *, seconds: float) -> int | None:
    """Wait so long for the process to end; return its exit status, None where it still runs."""
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None


class GunicornServer(BaseApplication):  # type: ignore[misc] # gunicorn has no types
    """gunicorn with its native ASGI worker, set up in code so that no file beside us is needed."""

    def __init__(self, workers: int, files: listening_sockets.ServingFiles, lock: IO[str]) -> None:
        self.workers = workers
        self.files = files
        self.lock = lock
        super().__init__()

    def load_config(self) -> None:
        values = {
            "bind": [f"fd://{file}" for file in self.files.sockets],
            "worker_class": "coordinator.edge.http.worker.Worker",
            "workers": self.workers,
            "graceful_timeout": settings.GRACEFUL_TIMEOUT,
            "timeout": 60,
            "keepalive": 75,
            "forwarded_allow_ips": "",  # edge.http.client_addresses decides whose headers are believed
            "proc_name": "signalbox",
            "loglevel": "warning",
            "logger_class": ServerLog,
            "control_socket_disable": True,
            "when_ready": freeze_garbage_collector_for_fork,
            "post_fork": lambda server, worker: worker.install_early_signal_recorder(server.SIG_QUEUE),
        }
        for name, value in values.items():
            self.cfg.set(name, value)

    def run(self) -> None:
        """Serve until told to stop."""
        GunicornArbiter(self).run()

    def load(self) -> Any:
        """Return the application; called once in each worker."""
        if settings.POOL:
            pooling.route_connections_through_pool(settings.POOL)
        from coordinator.asgi import application  # noqa: PLC0415 - only a worker may make threads

        return application


def freeze_garbage_collector_for_fork(_server: object) -> None:
    """Keep the garbage collector off what workers share with this process: it would write into all of it.

    It takes away what garbage the imports left first: 4 MB of two workers.
    """
    gc.collect()
    gc.freeze()
