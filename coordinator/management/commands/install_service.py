"""`manage.py install_service`: run Signalbox as a service with a user of its own, apart from agents."""

from __future__ import annotations

import os
import shlex
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from coordinator.operations import service
from coordinator.operations.service import Step, SystemdService


class Command(BaseCommand):
    """Makes a system user, its data folder, an environment file and a systemd unit. Needs root; may be repeated."""

    help = __doc__

    def add_arguments(self, parser: ArgumentParser) -> None:
        usual = SystemdService()
        parser.add_argument("--name", default=usual.name, help="the unit's and its user's name (%(default)s)")
        parser.add_argument("--data-dir", type=Path, help="its data folder (/var/lib/NAME)")
        parser.add_argument(
            "--env-file", type=Path, help="its settings file (/etc/NAME.env); an existing one is kept"
        )
        parser.add_argument("--bind", default=usual.bind, help="the address to serve on (%(default)s)")
        parser.add_argument(
            "--public-url", default="", help="the address that people use, if it is a different one"
        )
        parser.add_argument("--dry-run", action="store_true", help="only show what would be done")
        parser.add_argument("--remove", action="store_true", help="stop the service and remove its unit")
        parser.add_argument(
            "--delete-data",
            action="store_true",
            help="with --remove: also delete its data, settings and user",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Do what remains to be done; with --dry-run only print it."""
        installed = build_service_from_options(options)
        if options["delete_data"] and not options["remove"]:
            raise CommandError("--delete-data needs --remove.")
        if options["remove"]:
            steps = service.generate_removal_steps(installed, delete_data=options["delete_data"])
        else:
            service.require_installable(installed)
            steps = service.generate_install_steps(installed)
        dry = options["dry_run"]
        if not dry and os.geteuid() != 0:
            raise CommandError("Only root may do this. Use sudo, or --dry-run to see what it would do.")
        done = self.run_or_print_service_steps(list(steps), dry=dry)
        if not done:
            self.stdout.write("There is nothing to do.")
        if not dry:
            self.print_service_next_steps(
                installed, removed=options["remove"], with_data=options["delete_data"]
            )

    def run_or_print_service_steps(self, steps: list[Step], *, dry: bool) -> int:
        for step, act in steps:
            self.stdout.write(f"would {step}" if dry and not step.startswith(COMMANDS) else step)
            if not dry:
                act()
        return len(steps)

    def print_service_next_steps(self, installed: SystemdService, *, removed: bool, with_data: bool) -> None:
        if removed:
            next_steps = (
                ""
                if with_data
                else f" {installed.data}, {installed.settings} and the user {installed.name} are kept."
            )
            self.stdout.write(f"{installed.unit_path.name} is removed.{next_steps}")
            return
        if not Path("/run/systemd/system").exists():
            self.stdout.write(
                f"systemd does not run here, so nothing was started. The unit is {installed.unit_path}."
            )
            return
        manage = shlex.join(installed.manage_command)
        self.stdout.write(
            f"Signalbox runs as {installed.name}. The link for the first administrator: "
            f"journalctl -u {installed.name}\n"
            f"Commands need its user and settings:\n"
            f"  systemd-run --quiet --pipe --wait --collect --uid={installed.name} "
            f"-p WorkingDirectory={installed.code} -p EnvironmentFile={installed.settings} "
            f"-p Environment=SIGNALBOX_MCP_LAUNCHER={installed.mcp_folder} {manage} doctor"
        )


COMMANDS = ("useradd", "userdel", "systemctl", "chmod")


def build_service_from_options(options: dict[str, Any]) -> SystemdService:
    name = options["name"]
    return SystemdService(
        name=name,
        data=options["data_dir"] or Path("/var/lib") / name,
        settings=options["env_file"] or Path("/etc") / f"{name}.env",
        bind=options["bind"],
        public_url=options["public_url"],
    )
