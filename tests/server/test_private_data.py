"""The data folder, the database and the key are their user's alone: made so, mended where ours, refused otherwise."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from coordinator.lib import private_files
from coordinator.lib.private_files import PathNotPrivate
from tests.served import READY_WITHIN, ROOT

NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files to another user")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def manage(folder: Path, *words: str, umask: int = 0o000, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a command whose shell lets everybody read what it makes."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SIGNALBOX_")}
    clean.pop("DATABASE_URL", None)
    clean |= {"SIGNALBOX_DATA_DIR": str(folder), "DJANGO_SETTINGS_MODULE": "coordinator.settings"}
    command = [sys.executable, "manage.py", *words]
    return subprocess.run(
        command,
        cwd=ROOT,
        env=clean | env,
        umask=umask,
        capture_output=True,
        text=True,
        timeout=READY_WITHIN,
        check=False,
    )


KEY = {"SIGNALBOX_SECRET_KEY": "k" * 60}
# A database, whichever tables it has, and an attachment.
MAKES_FILES = (
    "from django.core.management import call_command; import io; from coordinator.actions.chat import attachments;"
    "call_command('migrate', 'contenttypes', verbosity=0);"
    "attachments.store_and_fingerprint_attachment_file(io.BytesIO(b'x' * 100_000), 'text/plain')"
)


@pytest.mark.parametrize("env", [KEY, {}], ids=["key set", "key kept"])
def test_everything_new_is_for_its_user_alone_whatever_the_umask_and_closed_again_by_any_command(
    tmp_path: Path, env: dict[str, str]
) -> None:
    folder = tmp_path / "new" / "data"
    done = manage(folder, "shell", "-c", MAKES_FILES, **env)
    assert done.returncode == 0, done.stderr
    found = {path: mode(path) for path in (folder.parent, folder, *folder.rglob("*"))}
    assert {path.suffix for path in found} >= {".sqlite3", ".bin"}
    assert {path: oct(bits) for path, bits in found.items() if bits & 0o077} == {}

    for path in (folder, *folder.rglob("*")):
        path.chmod(0o777 if path.is_dir() else 0o666)
    (folder / "signalbox.sqlite3-wal").write_bytes(b"")
    (folder / "signalbox.sqlite3-wal").chmod(0o644)
    assert manage(folder, "showmigrations", "contenttypes", **env).returncode == 0
    assert [path for path in (folder, *folder.rglob("*")) if mode(path) & 0o077] == []


def test_a_database_elsewhere_is_closed_and_so_is_its_folder_to_writers(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o755)
    elsewhere.chmod(0o777)
    file = elsewhere / "box.sqlite3"
    file.touch()
    file.chmod(0o666)
    env = {"DATABASE_URL": f"sqlite:///{file}"}
    assert manage(tmp_path / "data", "migrate", "contenttypes", **env).returncode == 0
    assert (mode(file), mode(elsewhere)) == (0o600, 0o755)


def test_a_database_where_everybody_may_put_files_is_refused(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    done = manage(tmp_path / "data", "migrate", DATABASE_URL=f"sqlite:///{shared}/box.sqlite3")
    assert done.returncode == 1
    assert "Everybody can write to" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (shared / "box.sqlite3").exists()


def test_a_folder_above_that_all_may_change_is_refused(tmp_path: Path) -> None:
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    done = manage(open_to_all / "data", "migrate")
    assert done.returncode == 1
    [line] = done.stderr.strip().splitlines()
    assert f"{open_to_all} is writable for everybody" in line
    assert f"chmod go-w {open_to_all}" in line


@as_root
@pytest.mark.parametrize("what", ["folder", "signalbox.sqlite3", "secret_key"])
def test_what_belongs_to_another_user_is_refused_by_name(tmp_path: Path, what: str) -> None:
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    path = folder if what == "folder" else folder / what
    path.touch()
    os.chown(path, NOBODY, NOBODY)
    done = manage(folder, "apikey", "list")
    assert done.returncode == 1
    assert f"{path} belongs to nobody" in done.stderr
    assert "Run it as nobody" in done.stderr


@as_root
def test_a_folder_above_that_another_user_owns_is_refused(tmp_path: Path) -> None:
    os.chown(tmp_path, NOBODY, NOBODY)
    try:
        with pytest.raises(PathNotPrivate, match="belongs to nobody"):
            private_files.ensure_private_folder(tmp_path / "data")
    finally:
        os.chown(tmp_path, 0, 0)


@as_root
def test_a_link_that_another_user_made_is_not_followed(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir()
    real.chmod(0o755)
    link.symlink_to(real)
    os.lchown(link, NOBODY, NOBODY)
    with pytest.raises(PathNotPrivate, match="is a link that nobody made"):
        private_files.ensure_private_folder(link)
    assert mode(real) == 0o755


def test_a_link_of_our_own_is_followed_and_its_goal_closed(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir()
    real.chmod(0o755)
    link.symlink_to(real)
    private_files.ensure_private_folder(link)
    assert mode(real) == 0o700


def test_a_disk_that_knows_no_modes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o777)
    monkeypatch.setattr(Path, "chmod", lambda *_: None)
    with pytest.raises(PathNotPrivate, match="has no permissions"):
        private_files.ensure_private_folder(tmp_path)


def test_a_group_of_ones_own_may_write_above_and_one_with_others_may_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o775)
    monkeypatch.setattr(private_files, "list_group_user_ids", lambda _gid: {os.geteuid()})
    private_files.ensure_private_folder(tmp_path / "data")
    monkeypatch.setattr(private_files, "list_group_user_ids", lambda _gid: {os.geteuid(), NOBODY})
    with pytest.raises(PathNotPrivate, match="writable for nobody, by its group"):
        private_files.ensure_private_folder(tmp_path / "data")


FIRST_START = """
import sys
from pathlib import Path
from coordinator import settings

def made(size):
    print("making", flush=True)
    sys.stdin.readline()
    return sys.argv[2] * 60

settings.secrets.token_urlsafe = made
print(settings.load_or_make_secret_key(Path(sys.argv[1])), flush=True)
"""


def first_start(folder: Path, letter: str) -> subprocess.Popen[str]:
    """Start a process that needs the key of `folder`; it is stopped in the middle of making one of `letter`."""
    process = subprocess.Popen(
        [sys.executable, "-c", FIRST_START, str(folder), letter],
        cwd=ROOT,
        env=os.environ | KEY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "making\n"
    return process


def test_processes_that_start_at_once_have_the_same_whole_key(tmp_path: Path) -> None:
    slow, quick = (first_start(tmp_path, letter) for letter in "sq")
    kept = [process.communicate("go on\n", timeout=60)[0].strip() for process in (quick, slow)]
    assert kept == ["q" * 60] * 2
    assert [path.name for path in tmp_path.iterdir()] == ["secret_key"]
    assert mode(tmp_path / "secret_key") == 0o600
