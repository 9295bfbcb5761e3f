"""`manage.py serve`: migrate, prepare static files, and run the server until it is told to stop.

Two processes do this: `manage.py` itself becomes the supervisor, which listens before it does anything else
(`coordinator/lib/supervisor.py`), and starts this command again with the options that nobody types.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import os
import signal
import socket
import sys
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import connections
from django.urls import reverse
from django.utils import timezone
from gunicorn import arbiter, glogging
from gunicorn.app.base import BaseApplication

from coordinator.actions.people import setup
from coordinator.engine import pooling
from coordinator.lib import addresses, supervisor
from coordinator.lib import worker_metrics as figures
from coordinator.mcp.hosting import starting
from coordinator.operations import startup
from coordinator.operations.doctor import shared_user
from coordinator.operations.doctor.settings import find_conflicting_settings

PYTHONS_OWN = (700, 10, 10)  # how often garbage is collected, which manage.py put off
IF_IT_RUNS = (
    "`manage.py restart` restarts it, `manage.py serve --take-over` puts this one in its place; nobody is refused "
    "meanwhile."
)


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
        parser.add_argument(
            "--take-over",
            action="store_true",
            help="take the place of the server that runs on this data folder, which ends when this one is ready",
        )
        parser.add_argument("--no-migrate", action="store_true", help="do not migrate the database")
        parser.add_argument(
            "--migrate-anyway",
            action="store_true",
            help="migrate even if running servers of an older version cannot go on with the new schema",
        )
        for name, kind in (("--control", int), ("--inherited", str), ("--lock", int), ("--problem", str)):
            parser.add_argument(name, type=kind, help=argparse.SUPPRESS)  # what the supervisor hands over

    def handle(self, *args: Any, **options: Any) -> None:
        """Prepare everything that can fail with a clear line, then become the server."""
        if options["control"] is None:  # not started through manage.py
            sys.exit(supervisor.serve_supervised())
        above = supervisor.connect_supervisor_link(options["control"])
        for check in find_conflicting_settings():
            self.stderr.write(self.style.WARNING(f"{check.message} {check.remedy}"))
        held = startup.lock_data_folder(
            settings.DATA_DIR, options["lock"], holder=os.getppid(), remedy=IF_IT_RUNS
        )
        if options["problem"]:
            raise CommandError(options["problem"])
        inherited = [int(file) for file in options["inherited"].split(",")]
        require_configured_port(inherited)
        above.send_lock_file(held.fileno())
        startup.prepare_database(
            migrate=not options["no_migrate"],
            say=self.stdout.write,
            before=above.wait_for_migration_turn,
            beside_any=options["migrate_anyway"],
        )
        startup.prepare_static_files(say=self.stdout.write)
        welcome = first_sign_in_message()
        settings.THREADS = options["threads"]
        figures.remove_stale_worker_metrics()
        workers = options["workers"] or default_worker_count()
        preload_worker_code()
        connections.close_all()  # a worker must not inherit the parent's connection
        self.stdout.write(f"Signalbox is at {settings.PUBLIC_URL} ({workers} workers). Ctrl-C stops it.")
        if shared := shared_user.find_shared_user_problem(os.geteuid()):
            self.stdout.write(self.style.WARNING(f"{shared} {shared_user.REMEDY}"))
        if welcome:
            self.stdout.write(f"Nobody can sign in yet. {welcome}")
        self.stdout.flush()
        GunicornServer(workers, [f"fd://{file}" for file in inherited]).run()
        held.close()


def first_sign_in_message() -> str:
    """Say how the first administrator comes in, by a fresh one-time link as a rule; "" where somebody has."""
    if not setup.is_setup_open():
        return ""
    if not settings.PASSWORD_SIGN_IN:
        return setup.build_no_password_notice()
    link = (
        f"{settings.PUBLIC_URL}{reverse('accounts:setup')}?token={setup.create_setup_token(timezone.now())}"
    )
    return f"Create the first administrator here:\n  {link}"


def default_worker_count() -> int:
    """Return 2 to 4 worker processes: one per core, two at least, so that one may be busy."""
    return max(2, min(4, len(os.sched_getaffinity(0))))


def require_configured_port(files: list[int]) -> None:
    """Raise CommandError where the sockets that a service manager opened are not where the settings say."""
    for file in files:
        with socket.socket(fileno=os.dup(file)) as given:
            host, port = given.getsockname()[:2]
        if port != settings.BIND_PORT:
            raise CommandError(
                f"The service manager listens at {addresses.join_host_port(host, port)} and SIGNALBOX_BIND says "
                f"{settings.BIND}. Run install_service again, or change the socket unit."
            )


def preload_worker_code() -> None:
    """Load the code once, before the workers are forked, so that each is ready at once and shares its memory.

    The application itself is made in each worker: it has threads.
    """
    for module in (settings.ROOT_URLCONF, "coordinator.edge.app"):
        importlib.import_module(module)


class ServerLog(glogging.Logger):  # type: ignore[misc] # gunicorn has no types
    def setup(self, cfg: Any) -> None:
        super().setup(cfg)
        self.error_log.handlers.clear()
        self.error_log.propagate = True


class GunicornArbiter(arbiter.Arbiter):  # type: ignore[misc] # gunicorn has no types
    """gunicorn's main process, which also keeps the keeper of stdio MCP servers running."""

    def __init__(self, app: GunicornServer) -> None:
        super().__init__(app)
        self._keeper = starting.KeeperProcess()

    def manage_workers(self) -> None:
        """Start what is missing; gunicorn calls this once a second and whenever a child has ended."""
        super().manage_workers()
        self._keeper.ensure_running()


class GunicornServer(BaseApplication):  # type: ignore[misc] # gunicorn has no types
    """gunicorn with its native ASGI worker, set up in code so that no file beside us is needed."""

    def __init__(self, workers: int, addresses: list[str]) -> None:
        self.workers = workers
        self.addresses = addresses
        super().__init__()

    def load_config(self) -> None:
        values = {
            "bind": self.addresses,
            "worker_class": "coordinator.edge.http.worker.Worker",
            "workers": self.workers,
            "graceful_timeout": settings.GRACEFUL_TIMEOUT,
            "timeout": 60,
            "keepalive": 75,
            "forwarded_allow_ips": "",  # edge/peers.py decides whose headers are believed
            "proc_name": "signalbox",
            "loglevel": "warning",
            "logger_class": ServerLog,
            "control_socket_disable": True,
            "when_ready": prepare_to_fork,
            "post_fork": lambda server, worker: worker.record_early_signals(server.SIG_QUEUE),
            "on_exit": lambda _server: gc.freeze(),  # a quarter of a second of a restart
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


def prepare_to_fork(_server: object) -> None:
    """Leave restarts to the supervisor, and keep the collector off what workers share with this process.

    The collector would write into all of it, for a copy each. It need not look for garbage first: of two hundred
    thousand objects some hundred are, and looking takes a tenth of a start.
    """
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    gc.freeze()
    gc.set_threshold(*PYTHONS_OWN)
