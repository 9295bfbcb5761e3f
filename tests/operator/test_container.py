"""`.deploy/Containerfile` makes an image whose own command serves, as a user that can change nothing of the program.

No registry is asked: a copy of this machine's own packages stands in for the image that the file names.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.patience import PATIENCE, until
from tests.served import ROOT, free_port

CONTAINERFILE = ROOT / ".deploy/Containerfile"
USER = 10001
BASE_PACKAGES = (
    "apt",
    "ca-certificates",
    "debian-archive-keyring",
    "mawk",
    "passwd",
    "python3",
    "python3-pip",
)
# What belongs to no package, and what this machine says of its package indexes and whom it trusts.
BASE_FOLDERS = (
    "etc/alternatives",
    "etc/apt",
    "etc/ssl",
    "etc/pip.conf",
    "etc/xdg/pip",
    "var/lib/dpkg/alternatives",
)
PROGRAMS = ("apt-cache", "buildah", "dpkg-query")

pytestmark = [
    pytest.mark.one_engine,
    pytest.mark.skipif(
        os.geteuid() != 0 or None in map(shutil.which, PROGRAMS),
        reason="builds an image: needs root, Debian's packages and buildah",
    ),
]


@dataclass(frozen=True)
class ImageStore:
    """Images and containers of these tests alone."""

    folder: Path

    def build_command(self, *arguments: object) -> list[str]:
        """Return a command of buildah that reads and writes nothing outside the folder."""
        driver = "overlay" if "\toverlay\n" in Path("/proc/filesystems").read_text() else "vfs"
        options = [
            "--root",
            f"{self.folder}/store",
            "--runroot",
            f"{self.folder}/run",
            "--storage-driver",
            driver,
        ]
        return ["buildah", *options, *map(str, arguments)]

    def run(self, *arguments: object) -> str:
        """Run a command of buildah to its end and return what it printed."""
        return read_output(*self.build_command(*arguments))


@dataclass(frozen=True)
class Container:
    """A container of the image."""

    store: ImageStore
    name: str
    config: dict[str, Any]  # the image's, as Docker writes it

    def build_command(self, *arguments: str, **environment: str) -> list[str]:
        """Return the command that runs one in the container, as the image's user and with its environment."""
        options = [f"--env={name}={value}" for name, value in environment.items()]
        return self.store.build_command("run", "--isolation=chroot", *options, self.name, "--", *arguments)


def read_output(*command: str) -> str:
    """Run a command to its end and return what it printed."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout.strip()


def list_packages() -> list[str]:
    """Return the installed packages that the base consists of, with all that they depend on."""
    every = read_output("dpkg-query", "-W", "-f", "${Essential} ${db:Status-Status} ${binary:Package}\n")
    essential = re.findall(r"^yes installed (\S+)$", every, re.MULTILINE)
    installed = set(re.findall(r" installed (\S+)$", every, re.MULTILINE))
    options = ("--recurse", "--installed", "--important")
    needed = read_output("apt-cache", "depends", *options, *essential, *BASE_PACKAGES).splitlines()
    return sorted({name for name in installed if name.partition(":")[0] in needed})


def copy_base(root: Path) -> None:
    """Copy to `root` what an image of Python on Debian has: essential packages, Python, pip, and apt's knowledge."""
    packages = list_packages()
    patterns = [f"{name.partition(':')[0]}{end}" for name in packages for end in (".*", ":*")]
    records = [str(path) for pattern in patterns for path in Path("/var/lib/dpkg/info").glob(pattern)]
    listed = map(Path, filter(os.path.isabs, read_output("dpkg-query", "-L", *packages).splitlines()))
    files = {str(path.parent.resolve() / path.name) for path in listed}  # /bin is a link
    listing = root.with_suffix(".list")
    listing.write_text("\n".join(sorted(files) + records))
    archive = root.with_suffix(".tar")
    skipped = ["--exclude=usr/share/doc", "--exclude=usr/share/man", "--exclude=usr/share/locale"]
    command = [
        "tar",
        "-C",
        "/",
        "-cf",
        archive,
        "--no-recursion",
        "--ignore-failed-read",
        *skipped,
        "-T",
        listing,
    ]
    subprocess.run(command, capture_output=True, check=True)
    root.mkdir()
    subprocess.run(["tar", "-C", root, "-xf", archive], check=True)
    archive.unlink()
    for name in BASE_FOLDERS:
        if os.path.isdir(f"/{name}"):
            shutil.copytree(f"/{name}", root / name, symlinks=True, dirs_exist_ok=True)
        elif os.path.exists(f"/{name}"):
            shutil.copy(f"/{name}", root / name)
    for name in ("passwd", "group"):
        shutil.copy(f"/usr/share/base-passwd/{name}.master", root / "etc" / name)
    (root / "var/lib/dpkg/status").write_text(read_output("dpkg-query", "-s", *packages) + "\n")
    for marker in root.glob("usr/lib/python3*/EXTERNALLY-MANAGED"):  # the image's own Python is nobody else's
        marker.unlink()
    (root / "usr/local/bin").mkdir(parents=True)
    (root / "usr/local/bin/python").symlink_to("/usr/bin/python3")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ImageStore]:
    """A store in memory where there is room: an image has 20,000 files."""
    memory = Path("/dev/shm")
    has_room = memory.is_dir() and shutil.disk_usage(memory).free > 4_000_000_000
    folder = Path(tempfile.mkdtemp(dir=memory if has_room else tmp_path_factory.getbasetemp()))
    store = ImageStore(folder)
    previous = os.umask(0o022)  # every user may read what is in an image
    try:
        yield store
    finally:
        os.umask(previous)
        store.run("rm", "--all")
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def container(store: ImageStore) -> Container:
    """A container of the image that the repository's Containerfile makes."""
    (base,) = re.findall(r"^FROM (\S+)$", CONTAINERFILE.read_text(), re.MULTILINE)
    root, recipe = store.folder / "base", store.folder / "Base"
    copy_base(root)
    recipe.write_text("FROM scratch\nADD . /\n")
    store.run("build", "--isolation=chroot", f"--tag=docker.io/library/{base}", f"--file={recipe}", root)
    shutil.rmtree(root)
    # Without the namespaces that CI may lack. Docker's format has the health check, the other has none.
    options = ("--isolation=chroot", "--format=docker", "--pull-never", "--tag=signalbox")
    store.run("build", *options, f"--file={CONTAINERFILE}", ROOT)
    config = json.loads(store.run("inspect", "--type=image", "signalbox"))["Docker"]["config"]
    return Container(store, store.run("from", "--pull-never", "signalbox"), config)


def test_the_image_serves_pages_as_its_user_and_stops_when_it_is_told_to(container: Container) -> None:
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    command = container.build_command(*container.config["Cmd"], SIGNALBOX_BIND=f"127.0.0.1:{port}")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            health = until(lambda: read_health(process, address), within=3 * PATIENCE)
            assert health["status"] == "healthy"
            check_page_with_styles(address)
            check = [part.replace(":8765/", f":{port}/") for part in container.config["Healthcheck"]["Test"]]
            assert check[0] == "CMD"
            read_output(*container.build_command(*check[1:]))
            server = find_server(process.pid)
            assert read_user(server) == USER
            os.kill(server, signal.Signals[container.config["StopSignal"]])
            output = process.communicate(timeout=PATIENCE)[0]
        finally:
            process.kill()
    assert process.returncode == 0, output
    assert "/ui/setup/?token=" in output


def test_its_user_can_change_nothing_of_the_program_and_make_backups(container: Container) -> None:
    writable = "import coordinator, os; print(os.getuid(), os.access(coordinator.__path__[0], os.W_OK))"
    assert read_output(*container.build_command("python", "-c", writable)) == f"{USER} False"
    assert "PostgreSQL" in read_output(*container.build_command("pg_dump", "--version"))


def read_health(process: subprocess.Popen[str], address: str) -> dict[str, Any]:
    """Return what a server that starts says of its health; nothing while it does not listen."""
    assert process.poll() is None, process.communicate()[0]
    try:
        health = httpx.get(f"{address}/health", timeout=PATIENCE).json()
    except httpx.TransportError:
        return {}
    assert isinstance(health, dict)
    return health


def check_page_with_styles(address: str) -> None:
    """Fail unless the sign-in page is there, on its own host name, and each of its style sheets."""
    host = httpx.get(f"{address}/ui/sign-in/").headers["Location"].split("/")[2]
    page = httpx.get(f"{address}/ui/sign-in/", headers={"Host": host})
    assert page.status_code == 200
    styles = re.findall(r'href="(/static/css/[^"]+)"', page.text)
    assert styles
    for style in styles:
        answer = httpx.get(f"{address}{style}", headers={"Host": host})
        assert answer.headers["Content-Type"].startswith("text/css"), style


def find_server(pid: int) -> int:
    """Return the first process of Python below those of buildah."""
    while b"python" not in Path(f"/proc/{pid}/cmdline").read_bytes().partition(b"\0")[0]:
        children = [task.read_text() for task in Path(f"/proc/{pid}/task").glob("*/children")]
        (pid,) = map(int, " ".join(children).split())
    return pid


def read_user(pid: int) -> int:
    """Return the user that a process runs as."""
    return int(re.findall(r"^Uid:\t(\d+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)[0])
