"""Signalbox as a service of its own on a machine with systemd: its user, its data folder, its settings, its unit.

Agents that run as another user can then neither read the database and the secret key nor use `manage.py`. Every step
looks first: what is there already is left alone, so that the whole may be repeated.
"""

from __future__ import annotations

import os
import pwd
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from django.core.management.base import CommandError

from coordinator.lib import installation, listening_sockets, private_files

MARK = "# Made by `manage.py install_service`, which writes it again when it is run again."
# What ProtectHome and PrivateTmp hide from the unit.
HIDDEN = (Path("/home"), Path("/root"), Path("/run/user"), Path("/tmp"), Path("/var/tmp"))  # noqa: S108
LOGINS = ("nologin", "false")
NAME = re.compile(r"[a-z_][a-z0-9_-]{0,26}")  # a user's name has 31 characters at most: `-mcp` follows

Step = tuple[str, Callable[[], object]]


@dataclass(frozen=True, slots=True)
class SystemdService:
    """What is to be installed, and where."""

    name: str = "signalbox"
    data: Path = Path("/var/lib/signalbox")
    settings: Path = Path("/etc/signalbox.env")
    bind: str = "127.0.0.1:8765"
    public_url: str = ""
    units: Path = Path("/etc/systemd/system")
    code: Path = installation.CODE
    python: Path = Path(sys.executable)

    @property
    def unit_path(self) -> Path:
        return self.units / f"{self.name}.service"

    @property
    def socket_unit_path(self) -> Path:
        """The unit by which systemd holds the addresses, so that a restart of the service refuses nobody."""
        return self.units / f"{self.name}.socket"

    @property
    def manage_command(self) -> list[str]:
        return installation.management_command_argv_prefix(self.code, str(self.python))

    @property
    def mcp_server_user_name(self) -> str:
        """The user that MCP servers run as: it can read nothing of the service's."""
        return f"{self.name}-mcp"

    @property
    def mcp_folder(self) -> Path:
        """Where the launcher of MCP servers listens."""
        return Path("/run", self.mcp_server_user_name)

    def render_mcp_units(self) -> dict[Path, str]:
        """Return the units that start MCP servers, without a network and with the machine's, and their texts."""
        units = {}
        for network, reach in NETWORKS.items():
            unit = f"{self.mcp_server_user_name}-{network}"
            names = {
                "mark": MARK, "user": self.mcp_server_user_name, "owner": self.name, "network": network, "reach": reach,
                "folder": self.mcp_folder, "data": self.data, "settings": self.settings,
                "command": shlex.join([str(self.python), "-I", str(self.code / LAUNCHER)]),
            }  # fmt: skip
            units[self.units / f"{unit}.socket"] = MCP_SOCKET.format(**names)
            units[self.units / f"{unit}@.service"] = MCP_UNIT.format(**names)
        return units

    @property
    def mcp_socket_names(self) -> list[str]:
        return [f"{self.mcp_server_user_name}-{network}.socket" for network in NETWORKS]

    def render_socket_unit(self) -> str:
        host, port = listening_sockets.split_bind_address(self.read_bind_address_setting())
        streams = [
            f"ListenStream={listening_sockets.join_host_port(serving_address, port)}"
            for serving_address in listening_sockets.list_addresses_to_bind(host)
        ]
        return SOCKET.format(
            mark=MARK, name=self.name, streams="\n".join(streams), backlog=listening_sockets.BACKLOG
        )

    def read_bind_address_setting(self) -> str:
        """Return SIGNALBOX_BIND as the settings file has it; an existing one is kept."""
        try:
            lines = self.settings.read_text().splitlines()
        except OSError:  # not there yet, or not ours to read
            lines = []
        values = [line.partition("=")[2].strip() for line in lines if line.startswith("SIGNALBOX_BIND=")]
        return next((value for value in reversed(values) if value), self.bind)

    def render_service_unit(self) -> str:
        return UNIT.format(
            mark=MARK,
            name=self.name,
            user=self.name,
            code=self.code,
            settings=self.settings,
            data=self.data,
            mcp_folder=self.mcp_folder,
            mcp_sockets=" ".join(self.mcp_socket_names),
            command=shlex.join([*self.manage_command, "serve"]),
        )

    def render_settings_file(self) -> str:
        """Return the environment file as it is at first."""
        lines = [
            "# The settings of Signalbox, one a line; .docs/settings.md lists them all.",
            f"SIGNALBOX_DATA_DIR={self.data}",
            f"SIGNALBOX_BIND={self.bind}",
        ]
        if self.public_url:
            lines.append(f"SIGNALBOX_PUBLIC_URL={self.public_url}")
        return "\n".join(lines) + "\n"


# systemd listens: what connects while the service restarts waits until it is back.
SOCKET = """{mark}
[Unit]
Description=The addresses of Signalbox

[Socket]
{streams}
BindIPv6Only=ipv6-only
FreeBind=yes
Backlog={backlog}
Service={name}.service

[Install]
WantedBy=sockets.target
"""

UNIT = """{mark}
[Unit]
Description=Signalbox
After=network-online.target {name}.socket {mcp_sockets}
Wants=network-online.target {mcp_sockets}
Requires={name}.socket

[Service]
User={user}
Group={user}
WorkingDirectory={code}
Environment=SIGNALBOX_MCP_LAUNCHER={mcp_folder}
EnvironmentFile={settings}
ExecStart={command}
ExecReload=/bin/kill -HUP $MAINPID
KillMode=mixed
Restart=always
RestartSec=1
TimeoutStopSec=10
LimitNOFILE=65536
UMask=0077
ReadWritePaths={data}
NoNewPrivileges=yes
CapabilityBoundingSet=
PrivateTmp=yes
PrivateDevices=yes
ProtectHome=yes
ProtectSystem=strict
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectProc=invisible
ProcSubset=all
PrivateIPC=yes
RemoveIPC=yes
KeyringMode=private
DevicePolicy=closed
LockPersonality=yes
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged
SystemCallErrorNumber=EPERM

[Install]
WantedBy=multi-user.target
"""

LAUNCHER = "coordinator/mcp/isolation/launcher.py"

# Each network that an admin can give to a server: what the unit says of it. No server reaches what listens on this
# machine alone, except the machine's own resolver.
NETWORKS = {
    "none": "PrivateNetwork=yes",
    "machine": "IPAddressDeny=localhost link-local\nIPAddressAllow=127.0.0.53 127.0.0.54",
}

# Only the service's user can connect. systemd starts the unit below for each connection.
MCP_SOCKET = """{mark}
[Unit]
Description=The launcher of Signalbox's MCP servers (network: {network})

[Socket]
ListenStream={folder}/{network}.sock
SocketUser={owner}
SocketGroup={owner}
SocketMode=0600
DirectoryMode=0755
Accept=yes
MaxConnections=128

[Install]
WantedBy=sockets.target
"""

MCP_UNIT = """{mark}
[Unit]
Description=An MCP server of Signalbox (network: {network})
CollectMode=inactive-or-failed

[Service]
User={user}
Group={user}
ExecStart={command}
StandardInput=socket
StandardOutput=journal
StandardError=journal
StateDirectory={user}
StateDirectoryMode=0700
WorkingDirectory=/var/lib/{user}
TimeoutStopSec=2
UMask=0077
LimitCORE=0
LimitNOFILE=4096
NoNewPrivileges=yes
CapabilityBoundingSet=
{reach}
TemporaryFileSystem=/run:ro /var:ro
BindPaths=/var/lib/{user}
BindReadOnlyPaths=-/run/systemd/resolve
InaccessiblePaths=-{data} -{settings}
PrivateTmp=yes
PrivateDevices=yes
PrivateIPC=yes
PrivateUsers=yes
RemoveIPC=yes
KeyringMode=private
DevicePolicy=closed
ProtectHome=tmpfs
ProtectSystem=strict
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectProc=invisible
LockPersonality=yes
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged
SystemCallErrorNumber=EPERM
"""


def require_installable(service: SystemdService) -> None:
    """Raise CommandError where the service could not run, or would be no more private than without one."""
    if not NAME.fullmatch(service.name):
        raise CommandError(
            f"{service.name!r} cannot be a user's name. Use lower-case letters, digits, - and _."
        )
    for path in (service.data, service.settings, service.units, service.code):
        if not re.fullmatch(r"/[\w./+@-]*", str(path)) or ".." in path.parts:
            raise CommandError(f"{str(path)!r} cannot be used in a unit file. Choose a plain absolute path.")
    pythons = {Path(sys.prefix), Path(sys.base_prefix)}
    for file_label, path in (("program", service.code), *(("Python", path) for path in pythons)):
        if any(path.is_relative_to(home) for home in HIDDEN):
            raise CommandError(
                f"The {file_label} is in {path}, which a service cannot see. {root_installation_hint()}"
            )
        for folder in (path, *path.parents):
            if change_reason := explain_who_can_replace_folder(folder):
                raise CommandError(
                    f"Others could change the {file_label} that the service runs: {folder} {change_reason}. "
                    f"{root_installation_hint()}"
                )
    for name in (service.name, service.mcp_server_user_name):
        require_unused_or_system_username(name)
    if service.data.exists() and (owner := owner_name_or_number(service.data)) not in {"root", service.name}:
        raise CommandError(f"{service.data} belongs to {owner}. Name another with --data-dir.")
    for unit in (service.unit_path, service.socket_unit_path, *service.render_mcp_units()):
        if unit.exists() and MARK not in unit.read_text():
            raise CommandError(
                f"{unit} was not made by this command. Move it away, or choose another --name."
            )
    try:
        listening_sockets.split_bind_address(service.read_bind_address_setting())
    except ValueError as problem:
        raise CommandError(f"{problem} Correct it in {service.settings}, or give --bind.") from None


def explain_who_can_replace_folder(folder: Path) -> str | None:
    """Say why anybody but root can replace files in `place`."""
    owner = folder.stat().st_uid
    return (
        f"belongs to {private_files.os_user_name_or_number(owner)}"
        if owner
        else private_files.find_folder_permission_problem(folder)
    )


def root_installation_hint() -> str:
    return (
        "Install it for root, and run this command there: python3 -m venv /opt/signalbox && "
        "/opt/signalbox/bin/pip install SIGNALBOX-WHEEL"
    )


def require_unused_or_system_username(name: str) -> None:
    user = find_system_user(name)
    if user is None:
        return
    if user.pw_uid == 0 or not user.pw_shell.endswith(LOGINS):
        raise CommandError(
            f"{name} is a user that people or agents work as (shell {user.pw_shell}). "
            "The service needs one of its own: choose another --name."
        )


def find_system_user(name: str) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(name)
    except KeyError:
        return None


def generate_install_steps(service: SystemdService) -> Iterator[Step]:
    """Yield what is still to be done, each as a line that says it and a function that does it."""
    homes = {
        service.name: service.data,
        service.mcp_server_user_name: Path("/var/lib", service.mcp_server_user_name),
    }
    for name, home in homes.items():
        if find_system_user(name) is None:
            command = ["useradd", "--system", "--user-group", "--no-create-home", "--home-dir", str(home)]
            command += ["--shell", "/usr/sbin/nologin", name]
            yield shlex.join(command), partial(run_command_or_fail, command)
    if not is_private_folder(service.data, service.name):
        yield (
            f"make {service.data}, 0700, for {service.name}",
            partial(create_owned_folder, service.data, service.name),
        )
    if not service.settings.exists():
        text = service.render_settings_file()
        yield (
            f"write {service.settings}, 0600, for root:\n{indent_lines(text)}",
            partial(replace_file_content, service.settings, text),
        )
    elif service.settings.stat().st_mode & private_files.OTHERS:
        yield f"chmod 600 {service.settings}", partial(service.settings.chmod, private_files.FILE)
    moved = (
        not service.socket_unit_path.exists()
        or service.socket_unit_path.read_text() != service.render_socket_unit()
    )
    units = {
        **service.render_mcp_units(),
        service.socket_unit_path: service.render_socket_unit(),
        service.unit_path: service.render_service_unit(),
    }
    for unit, text in units.items():
        if not unit.exists() or unit.read_text() != text:
            yield (
                f"write {unit}, 0644, for root:\n{indent_lines(text)}",
                partial(replace_file_content, unit, text, 0o644),
            )
    yield from generate_systemctl_steps(
        ["daemon-reload"],
        ["enable", service.socket_unit_path.name, service.unit_path.name, *service.mcp_socket_names],
    )
    yield from generate_systemctl_steps(["restart", *service.mcp_socket_names])
    if moved:  # the service may hold the addresses itself, as it did before it had a socket unit
        yield from generate_systemctl_steps(
            ["stop", service.unit_path.name], ["restart", service.socket_unit_path.name]
        )
    yield from generate_systemctl_steps(["restart", service.unit_path.name])


def generate_removal_steps(service: SystemdService, *, delete_data: bool) -> Iterator[Step]:
    """Yield what takes the service away; the data, its user and the settings stay unless `delete_data`."""
    units = [
        unit
        for unit in (service.unit_path, service.socket_unit_path, *service.render_mcp_units())
        if unit.exists()
    ]
    if units:
        stopped = [unit.name for unit in units if "@" not in unit.name]
        yield from generate_systemctl_steps(
            ["disable", "--now", *stopped], ["stop", f"{service.mcp_server_user_name}-*.service"]
        )
        for unit in units:
            yield f"remove {unit}", unit.unlink
        yield from generate_systemctl_steps(["daemon-reload"])
    if not delete_data:
        return
    if service.settings.exists():
        yield f"remove {service.settings}", service.settings.unlink
    if service.data.exists() and owner_name_or_number(service.data) == service.name:
        yield f"remove {service.data} with all that is in it", partial(shutil.rmtree, service.data)
    state = Path("/var/lib", service.mcp_server_user_name)
    if state.exists() and owner_name_or_number(state) == service.mcp_server_user_name:
        yield f"remove {state} with all that is in it", partial(shutil.rmtree, state)
    for name in (service.name, service.mcp_server_user_name):
        if find_system_user(name) is not None:
            yield f"userdel {name}", partial(run_command_or_fail, ["userdel", name])


def generate_systemctl_steps(*commands: list[str]) -> Iterator[Step]:
    """Yield calls of systemctl; none where systemd does not run, as in a container."""
    if Path("/run/systemd/system").exists():
        for command in commands:
            yield shlex.join(["systemctl", *command]), partial(run_command_or_fail, ["systemctl", *command])


def indent_lines(text: str) -> str:
    return "\n".join(f"    {line}".rstrip() for line in text.splitlines())


def is_private_folder(folder: Path, owner: str) -> bool:
    return (
        folder.is_dir()
        and owner_name_or_number(folder) == owner
        and not folder.stat().st_mode & private_files.OTHERS
    )


def owner_name_or_number(path: Path) -> str:
    return private_files.os_user_name_or_number(path.stat().st_uid)


def create_owned_folder(folder: Path, name: str) -> None:
    user = find_system_user(name)
    assert user is not None, "made by the step before"
    folder.mkdir(mode=private_files.FOLDER, parents=True, exist_ok=True)
    if any(folder.iterdir()) and folder.stat().st_uid != user.pw_uid:
        raise CommandError(
            f"{folder} is not empty and does not belong to {name}. Name another with --data-dir."
        )
    os.chown(folder, user.pw_uid, user.pw_gid)
    folder.chmod(private_files.FOLDER)


def replace_file_content(path: Path, text: str, mode: int = private_files.FILE) -> None:
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as file:
        os.fchmod(file.fileno(), mode)
        file.write(text)
    fresh.replace(path)


def run_command_or_fail(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own words
    if done.returncode:
        raise CommandError(f"{shlex.join(command)} failed: {done.stderr.strip() or done.returncode}")
