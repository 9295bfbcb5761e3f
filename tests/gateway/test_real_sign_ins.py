"""Sign-in at an MCP server whose authorization server is somebody else's program: oidc-provider from npm."""

from __future__ import annotations

import os
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urljoin, urlsplit

import httpx
import pytest
from mcp.server.auth.provider import AccessToken

from tests.agents import programs
from tests.certificates import write_certificate
from tests.gateway.agents import OTHER_KEY, furnish, text_of
from tests.gateway.conftest import TABLES
from tests.gateway.signed_in_server import protected_by
from tests.gateway.test_sign_ins import OAUTH, call, leave_for_sign_in, switch_on
from tests.gateway.tls_proxy import ending_tls
from tests.served import Served, free_port

pytestmark = [pytest.mark.served, pytest.mark.real_agent]
SCRIPT = Path(__file__).with_name("authorization_server.mjs")


@dataclass
class Upstream:
    """The MCP server's address, the authorization server's, its log, and what the MCP server was asked."""

    url: str
    issuer: str
    log: Path
    asked: Counter[str]

    def count(self, grant_type: str) -> int:
        """Return how many tokens were issued for a grant."""
        return self.log.read_text().splitlines().count(f"issued {grant_type}")


class Introspection:
    """Asks the authorization server about each token (RFC 7662)."""

    def __init__(self, issuer: str) -> None:
        self.issuer = issuer

    async def verify_token(self, token: str) -> AccessToken | None:
        form = {"token": token, "client_id": "mcp-server", "client_secret": "introspects"}
        async with httpx.AsyncClient(verify=False) as client:
            found = (await client.post(f"{self.issuer}/token/introspection", data=form)).json()
        if not found.get("active"):
            return None
        return AccessToken(
            token=token,
            client_id=found["client_id"],
            scopes=found.get("scope", "").split(),
            resource=found.get("aud"),
            subject=found.get("sub"),
        )


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    return write_certificate(tmp_path)


@pytest.fixture
def clients() -> str:
    """Return how the authorization server gets to know clients."""
    return "register"


@pytest.fixture
def upstream(tmp_path: Path, certificate: Path, clients: str) -> Iterator[Upstream]:
    programs.needed("oidc-provider")
    node, program = programs.command("oidc-provider")
    port, server_port = free_port(), free_port()
    issuer, log, asked = f"http://127.0.0.1:{port}", tmp_path / "log", Counter[str]()
    resource = f"http://127.0.0.1:{server_port}/mcp"
    with log.open("wb") as output:
        words = [node, str(SCRIPT), program, str(port), resource, "3600", clients]
        env = os.environ | {"NODE_EXTRA_CA_CERTS": str(certificate)}
        process = subprocess.Popen(words, stdout=output, stderr=subprocess.STDOUT, env=env)
    try:
        while "ready" not in log.read_text():
            assert process.poll() is None, log.read_text()
        with protected_by(Introspection(issuer), issuer, port=server_port, asked=asked) as url:
            yield Upstream(url, issuer, log, asked)
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def box(served: Served, upstream: Upstream) -> Served:
    served.emptied(*TABLES, *OAUTH)
    furnish(served, upstream.url)
    return served


@pytest.fixture
def public_box(serve: Callable[..., Served], upstream: Upstream, certificate: Path) -> Iterator[Served]:
    """The program at an https:// address that the authorization server can read."""
    port = free_port()
    url = f"https://127.0.0.1:{port}"
    served = serve(workers=2, SIGNALBOX_PUBLIC_URL=url, SIGNALBOX_TRUSTED_PROXIES="127.0.0.1")
    furnish(served, upstream.url)
    with ending_tls(port, served.url, certificate):
        served.url = url
        yield served


def consent(address: str, name: str) -> dict[str, str]:
    """Sign in on the authorization server's own pages, allow what is asked, and return what it sends back."""
    with httpx.Client(verify=False) as browser:
        answer = browser.get(address)
        for _ in range(12):
            if answer.status_code in {302, 303}:
                address = urljoin(address, answer.headers["location"])
                if "/ui/mcp/sign-in/back/" in address:
                    query = parse_qs(urlsplit(address).query)
                    return {key: values[0] for key, values in query.items()}
                answer = browser.get(address)
                continue
            assert answer.status_code == 200, answer.text
            action = re.search(r'action="([^"]+)"', answer.text)
            prompt = re.search(r'name="prompt" value="([^"]+)"', answer.text)
            assert action, answer.text
            assert prompt, answer.text
            address = urljoin(address, action[1])
            answer = browser.post(address, data={"prompt": prompt[1], "login": name, "password": "any"})
    raise AssertionError(f"the sign-in ends nowhere: {answer.text}")


def test_a_person_signs_in_and_the_token_is_renewed_and_revoked(box: Served, upstream: Upstream) -> None:
    assert "Saved." in switch_on(box, "shared")
    admin = box.sign_in("admin")
    sent = consent(leave_for_sign_in(admin), "ada")
    assert sent["iss"] == upstream.issuer
    assert "You are signed in at example." in admin.post("/ui/mcp/sign-in/back/", data=sent).text
    assert [text_of(call(box, key)["result"]) for key in ("sbx_gateway-agent-one", OTHER_KEY)] == ["ada"] * 2
    box.sql("UPDATE mcp_access_tokens SET expires_at = '2026-01-01T00:00:00+00:00'")
    assert text_of(call(box)["result"]) == "ada"
    assert upstream.count("refresh_token") == 1
    ((token,),) = box.sql("SELECT id FROM mcp_access_tokens")
    assert "Signed out." in admin.post("/ui/mcp/sign-in/end/example/", data={"token": str(token)}).text
    assert "must sign in" in str(call(box))


@pytest.mark.parametrize("clients", ["documents"])
def test_a_server_that_registers_nobody_reads_who_signalbox_is(
    public_box: Served, upstream: Upstream
) -> None:
    assert "Saved." in switch_on(public_box, "shared")
    admin = public_box.sign_in("admin")
    document = f"{public_box.url}/ui/mcp/sign-in/client/"
    address = leave_for_sign_in(admin)
    assert parse_qs(urlsplit(address).query)["client_id"] == [document]
    sent = consent(address, "ada")
    assert "You are signed in at example." in admin.post("/ui/mcp/sign-in/back/", data=sent).text
    assert text_of(call(public_box)["result"]) == "ada"
    public_box.sql("UPDATE mcp_access_tokens SET expires_at = '2026-01-01T00:00:00+00:00'")
    assert text_of(call(public_box)["result"]) == "ada"
    assert upstream.count("refresh_token") == 1
    ((token,),) = public_box.sql("SELECT id FROM mcp_access_tokens")
    assert "Signed out." in admin.post("/ui/mcp/sign-in/end/example/", data={"token": str(token)}).text
    assert "must sign in" in str(call(public_box))


@pytest.mark.parametrize("clients", ["both"])
def test_an_administrator_chooses_to_register_where_documents_are_taken_too(
    public_box: Served, upstream: Upstream
) -> None:
    document = f"{public_box.url}/ui/mcp/sign-in/client/"
    clients = "SELECT client_id, registered_for FROM mcp_authorizations"
    assert "Saved." in switch_on(public_box, "shared", must_register="on")
    ((client_id, registered_for),) = public_box.sql(clients)
    assert (client_id == document, registered_for) == (False, f"{public_box.url}/ui/mcp/sign-in/back/")
    sent = consent(leave_for_sign_in(public_box.sign_in("admin")), "ada")
    assert sent["iss"] == upstream.issuer
    assert "Saved." in switch_on(public_box, "shared")
    assert public_box.sql(clients) == [(document, "")]


@pytest.mark.parametrize("clients", ["documents"])
def test_a_changed_address_of_signalbox_asks_for_the_sign_in_to_be_saved_again(public_box: Served) -> None:
    admin, changed = public_box.sign_in("admin"), "own address was changed"
    switch_on(public_box, "shared")
    page = admin.get("/ui/mcp/servers/example/").text
    assert changed not in page
    assert 'value="https://' not in page.partition('id="sign-in-client"')[2].partition(">")[0]
    public_box.sql("UPDATE mcp_authorizations SET client_id = 'https://old.example/ui/mcp/sign-in/client/'")
    assert changed in admin.get("/ui/mcp/servers/example/").text
    assert changed not in switch_on(public_box, "shared")


def test_signalbox_s_own_credentials_need_nobody(box: Served, upstream: Upstream) -> None:
    refused = switch_on(box, "client")
    assert "Client credentials need a client" in refused
    page = switch_on(box, "client", client_id="signalbox", client_secret="known only to both")
    assert "Saved." in page
    assert "known only to both" not in page + str(box.sql("SELECT client_secret FROM mcp_authorizations"))
    for key in ("sbx_gateway-agent-one", OTHER_KEY):
        assert "isError" not in str(call(box, key)["result"]).replace("'isError': False", "")
    assert (upstream.count("client_credentials"), upstream.asked["whoami"]) == (1, 2)


def test_a_person_who_refuses_is_not_signed_in(box: Served) -> None:
    switch_on(box, "shared")
    admin = box.sign_in("admin")
    state = parse_qs(urlsplit(leave_for_sign_in(admin)).query)["state"][0]
    page = admin.post("/ui/mcp/sign-in/back/", data={"state": state, "error": "access_denied"}).text
    assert "example did not sign you in: access_denied." in page
    assert box.sql("SELECT count(*) FROM mcp_access_tokens") == [(0,)]
