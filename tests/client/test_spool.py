"""What could not be told is kept: in order, bounded, for its owner alone, and told once."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from coordinator.client import spool as module
from coordinator.client.settings import write_private_file
from coordinator.client.spool import HOOK_RETENTION_SECONDS, LARGEST, HookSpool, UnsentHook


@pytest.fixture
def spool(tmp_path: Path) -> HookSpool:
    return HookSpool(str(tmp_path / "spool"))


def kept(number: int, *, at: float | None = None, body: bytes = b"{}") -> UnsentHook:
    return UnsentHook("codex", f"id-{number}", time.time() if at is None else at, body)


def told(spool: HookSpool, most: int = 1_000) -> list[str]:
    """Tell what is kept, as far as the server takes it, and return the ids."""
    found: list[str] = []

    def tell(one: UnsentHook) -> bool:
        if len(found) == most:
            return False
        found.append(one.id)
        return True

    spool.send_spooled_hooks(tell)
    return found


def test_it_is_told_in_order_and_once(spool: HookSpool) -> None:
    assert not spool
    for number in range(12):
        assert spool.add_hook_unless_too_large(kept(number))
    assert spool
    assert told(spool, 5) == [f"id-{number}" for number in range(5)]
    assert spool.add_hook_unless_too_large(kept(99))
    assert told(spool) == [*(f"id-{number}" for number in range(5, 12)), "id-99"]
    assert told(spool) == []


def test_what_comes_back_is_what_was_kept(spool: HookSpool) -> None:
    found: list[UnsentHook] = []
    spool.add_hook_unless_too_large(
        UnsentHook("gemini", "id", 1.5 + time.time() // 1, b'{"a": "\xff\n\0"}', "Denied: no\nbut …")
    )
    spool.send_spooled_hooks(lambda one: not found.append(one))  # type: ignore[func-returns-value]
    assert (found[0].agent, found[0].body, found[0].denied) == (
        "gemini",
        b'{"a": "\xff\n\0"}',
        "Denied: no\nbut …",
    )


def test_two_at_once_both_have_a_place(spool: HookSpool) -> None:
    with ThreadPoolExecutor(1) as pool:  # another process has another name for its file aside
        list(pool.map(lambda number: spool.add_hook_unless_too_large(kept(number)), range(40)))
    assert sorted(told(spool)) == sorted(f"id-{number}" for number in range(40))


def test_only_one_at_a_time_tells(spool: HookSpool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOCK_WITHIN", 0.0)
    spool.add_hook_unless_too_large(kept(1))
    others: list[list[str]] = []
    spool.send_spooled_hooks(lambda _one: not others.append(told(spool)))  # type: ignore[func-returns-value]
    assert others == [[]]


def test_of_too_many_the_oldest_go(spool: HookSpool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_HOOKS", 3)
    for number in range(5):
        spool.add_hook_unless_too_large(kept(number))
    assert told(spool) == ["id-2", "id-3", "id-4"]
    monkeypatch.setattr(module, "MOST_BYTES", 2_500)
    for number in range(3):
        spool.add_hook_unless_too_large(kept(number, body=b"x" * 600))
    assert told(spool) == ["id-1", "id-2"]


def test_what_is_too_large_is_not_kept(spool: HookSpool) -> None:
    assert not spool.add_hook_unless_too_large(kept(1, body=b"x" * LARGEST))
    assert not spool


def test_what_is_old_from_another_time_or_broken_is_dropped(spool: HookSpool, tmp_path: Path) -> None:
    spool.add_hook_unless_too_large(kept(1, at=time.time() - HOOK_RETENTION_SECONDS - 1))
    spool.add_hook_unless_too_large(kept(2, at=time.time() + HOOK_RETENTION_SECONDS + 1))
    spool.add_hook_unless_too_large(kept(3, at=time.time() + 60))  # the clock was put back a little
    (tmp_path / "spool" / "0000000004").write_bytes(b'{"agent": 1}\nx')
    assert told(spool) == ["id-3"]
    assert not spool


def test_it_is_its_owners_alone(spool: HookSpool, tmp_path: Path) -> None:
    spool.add_hook_unless_too_large(kept(1))
    told(spool, 0)
    found = [tmp_path / "spool", *(tmp_path / "spool").iterdir()]
    assert [path.name for path in found if path.stat().st_mode & 0o077] == []
    assert len(found) == 3


def test_what_is_kept_lies_in_folders_of_this_user_alone_whatever_the_umask(tmp_path: Path) -> None:
    usual = os.umask(0)
    try:
        write_private_file(str(tmp_path / "config" / "signalbox" / "settings.json"), b"{}")
        with HookSpool(
            str(tmp_path / "state" / "signalbox" / "server" / "spool")
        )._try_sender_lock_during_block():
            pass
    finally:
        os.umask(usual)
    made = [path for path in tmp_path.rglob("*") if path.stat().st_mode & 0o077]
    assert made == []
