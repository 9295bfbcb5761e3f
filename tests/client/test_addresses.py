"""What counts as a server's address, and which addresses are this machine's: no proxy and no open line for those."""

from __future__ import annotations

import pytest

from coordinator.client.connecting import http_requests
from coordinator.client.connection import ServerAddress
from coordinator.client.settings import KEY_VARIABLE, URL_VARIABLE, NotConnected, resolve_client_settings

HERE = [
    "localhost", "LOCALHOST", "localhost.", "signalbox-1.localhost", "127.0.0.1", "127.8.9.10", "127.1", "2130706433",
    "[::1]", "[0:0:0:0:0:0:0:1]",
]  # fmt: skip
ELSEWHERE = [
    "localhost.example",
    "notlocalhost",
    "127.example",
    "127.0.0.1.example",
    "128.0.0.1",
    "[::2]",
    "10.0.0.1",
]
NO_ADDRESS = [
    "",
    "x",
    "ftp://x",
    "http://",
    "http://me@x",
    "http://x:0",
    "http://x:99999",
    "http://x:8_0",
    "http://x y",
]


@pytest.mark.parametrize("host", HERE)
def test_loopback_is_this_machine_in_every_form_that_the_system_takes(host: str) -> None:
    assert ServerAddress(f"http://{host}:8765").is_local_host
    assert not http_requests.is_key_sent_unencrypted(f"http://{host}:8765")


@pytest.mark.parametrize("host", ELSEWHERE)
def test_what_only_looks_like_it_is_not(host: str) -> None:
    assert not ServerAddress(f"http://{host}").is_local_host
    assert http_requests.is_key_sent_unencrypted(f"http://{host}")
    assert not http_requests.is_key_sent_unencrypted(f"https://{host}")


@pytest.mark.parametrize("url", NO_ADDRESS)
def test_no_reader_takes_what_is_none(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r".*"):
        ServerAddress(url)
    with pytest.raises(http_requests.ServerRequestFailed, match="is not an address"):
        http_requests.normalize_server_url(url)
    monkeypatch.setenv(URL_VARIABLE, url or "/")
    monkeypatch.setenv(KEY_VARIABLE, "sbx_x")
    with pytest.raises(NotConnected):
        resolve_client_settings()


def test_an_address_is_kept_without_what_leads_into_a_page() -> None:
    assert (
        http_requests.normalize_server_url(" HTTPS://Signalbox.example:8443/box/#top ")
        == "https://Signalbox.example:8443/box"
    )
