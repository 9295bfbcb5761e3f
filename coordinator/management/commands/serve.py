"""`manage.py serve`: migrate, prepare static files, and run the server until it is told to stop."""

from __future__ import annotations

import argparse
import gc
import os
import socket
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import connections
from django.urls import reverse
from django.utils import timezone
from gunicorn import glogging
from gunicorn.app.base import BaseApplication

from coordinator import figures, startup
from coordinator.actions import setup
from coordinator.doctor.settings import unfit


class Command(BaseCommand):
    """Runs Signalbox on one address, with as many workers as the machine has use for."""

    help = "Run Signalbox: migrates the database, prepares static files, serves until Ctrl-C."
    requires_system_checks: list[str] = []  # a restart must be ready within 2.5 s; CI runs the checks

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the options; every one has an environment variable that is its default."""
        parser.add_argument(
            "--workers", type=int, default=settings.WORKERS, help="worker processes (0: choose)"
        )
        parser.add_argument("--threads", type=int, default=settings.THREADS, help="Django threads per worker")
        parser.add_argument("--no-migrate", action="store_true", help="leave the database's schema as it is")

    def handle(self, *args: Any, **options: Any) -> None:
        """Prepare everything that can fail with a clear line, then become the server."""
        for check in unfit():
            self.stderr.write(self.style.WARNING(f"{check.says} {check.remedy}"))
        held = startup.hold_data_folder(settings.DATA_DIR)
        refuse_taken_port(settings.BIND_HOST, settings.BIND_PORT)
        startup.prepare_database(migrate=not options["no_migrate"], say=self.stdout.write)
        startup.prepare_static_files(say=self.stdout.write)
        link = setup_link()
        settings.THREADS = options["threads"]
        figures.forget_earlier_workers()
        workers = options["workers"] or workers_for_this_machine()
        connections.close_all()  # a worker must not inherit the parent's connection
        self.stdout.write(f"Signalbox is at {settings.PUBLIC_URL} ({workers} workers). Ctrl-C stops it.")
        if link:
            self.stdout.write(f"Nobody can sign in yet. Make the first administrator here:\n  {link}")
        self.stdout.flush()
        Server(workers).run()
        held.close()


def setup_link() -> str | None:
    """Return a fresh one-time link to the set-up page, or None where somebody can sign in already."""
    if not setup.is_open():
        return None
    return f"{settings.PUBLIC_URL}{reverse('accounts:setup')}?token={setup.make_link(timezone.now())}"


def workers_for_this_machine() -> int:
    """Return 2 to 4 worker processes: one per core, two at least, so that one may be busy."""
    return max(2, min(4, len(os.sched_getaffinity(0))))


def refuse_taken_port(host: str, port: int) -> None:
    """Raise CommandError if the address cannot be bound by us alone."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as problem:
            raise CommandError(
                f"{host}:{port} cannot be used: {problem.strerror}. Choose another with SIGNALBOX_BIND."
            ) from None


class ServerLog(glogging.Logger):  # type: ignore[misc] # gunicorn has no types
    """gunicorn's own lines, in the form that all others have."""

    def setup(self, cfg: Any) -> None:
        """Keep no handler of its own."""
        super().setup(cfg)
        self.error_log.handlers.clear()
        self.error_log.propagate = True


class Server(BaseApplication):  # type: ignore[misc] # gunicorn has no types
    """gunicorn with its native ASGI worker, set up in code so that no file beside us is needed."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        super().__init__()

    def load_config(self) -> None:
        """Tell gunicorn what it needs to know."""
        values = {
            "bind": [settings.BIND],
            "worker_class": "coordinator.edge.worker.Worker",
            "workers": self.workers,
            "reuse_port": True,  # otherwise a few keep-alive clients may all sit on one worker
            "graceful_timeout": settings.GRACEFUL_TIMEOUT,
            "timeout": 60,
            "keepalive": 75,
            "forwarded_allow_ips": "",  # edge/peers.py decides whose headers are believed
            "proc_name": "signalbox",
            "loglevel": "warning",
            "logger_class": ServerLog,
            "control_socket_disable": True,
            "when_ready": _share_what_is_loaded,
            "on_exit": lambda _server: gc.freeze(),  # a quarter of a second of a restart
        }
        for name, value in values.items():
            self.cfg.set(name, value)

    def load(self) -> Any:
        """Return the application; called once in each worker."""
        from coordinator.asgi import application  # noqa: PLC0415 - only a worker may make threads

        return application


def _share_what_is_loaded(_server: object) -> None:
    """Keep the collector off what workers share with this process: it would write into all of it, for a copy each."""
    gc.collect()
    gc.freeze()
