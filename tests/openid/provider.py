"""A small OpenID provider on this machine: real HTTP, real keys, and whatever lies a test has it tell."""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.server
import json
import threading
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import OctKey, RSAKey
from joserfc.jws import JWSRegistry

CLIENT, SECRET = "signalbox", "a-secret-of-the-client-0123456789"
ANNA = {"sub": "u-1", "preferred_username": "anna", "groups": ["ops"], "given_name": "Anna"}


class Provider:
    """One provider; `person` is who signs in there, and the other attributes are what it does wrong."""

    def __init__(self) -> None:
        self.keys = {"first": RSAKey.generate_key(2048, {"kid": "first", "use": "sig"})}
        self.stranger = RSAKey.generate_key(2048, {"kid": "first", "use": "sig"})
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), type("Door", (Door,), {"of": self}))
        self.server.daemon_threads = True
        self.issuer = f"http://localhost:{self.server.server_port}/realms/test"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()
        self.well()

    def well(self) -> Provider:
        """Do nothing wrong from now on, and know of nobody."""
        self.person: dict[str, Any] = dict(ANNA)
        self.codes: dict[str, dict[str, str]] = {}
        self.asked: list[str] = []
        self.change: Callable[[dict[str, Any]], object] = lambda claims: None
        self.sign: Callable[[dict[str, Any]], str] = self.signed
        self.answers: dict[str, Callable[[Door], object]] = {}
        self.about: dict[str, Any] = {}
        self.listed = ["first"]
        self.asks = False  # whether a person presses a button there, or is sent back at once
        return self

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def description(self) -> dict[str, Any]:
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/auth",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/keys",
            "end_session_endpoint": f"{self.issuer}/logout",
            "id_token_signing_alg_values_supported": ["RS256", "HS256", "none"],
            "authorization_response_iss_parameter_supported": True,
            **self.about,
        }

    def authorize(self, address: str) -> dict[str, str]:
        """Do what a browser and a person do at `address`; return what they bring back."""
        asked = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
        assert (asked["client_id"], asked["response_type"], asked["code_challenge_method"]) == (
            CLIENT,
            "code",
            "S256",
        )
        code = f"code-{len(self.codes)}"
        self.codes[code] = asked
        return {"code": code, "state": asked["state"], "iss": self.issuer}

    def redeem(self, sent: dict[str, str], authorization: str) -> dict[str, Any] | None:
        """Return the token for a code, once; None where something of it is wrong."""
        given = base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
        asked = self.codes.pop(sent.get("code", ""), None)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(sent.get("code_verifier", "").encode()).digest())
        if authorization != f"Basic {given}" or asked is None:
            return None
        if challenge.rstrip(b"=").decode() != asked["code_challenge"]:
            return None
        if sent.get("redirect_uri") != asked["redirect_uri"]:
            return None
        now = int(time.time())
        claims = {"iss": self.issuer, "aud": CLIENT, "iat": now, "exp": now + 300, "nonce": asked["nonce"]}
        claims |= self.person | {"auth_time": now if "max_age" in asked else now - 7200}
        self.change(claims)
        return {"access_token": "at", "token_type": "Bearer", "id_token": self.sign(claims)}

    def signed(self, claims: dict[str, Any], key: RSAKey | OctKey | None = None, **header: Any) -> str:
        """Return the claims as a token, by the first key and RS256 unless told otherwise."""
        header = {"alg": "RS256", "kid": "first"} | header
        return jwt.encode(
            header, claims, key or self.keys["first"], registry=JWSRegistry(algorithms=[header["alg"]])
        )

    def unsigned(self, claims: dict[str, Any]) -> str:
        """Return the claims as a token that says that it needs no signature."""
        parts = [json.dumps(part).encode() for part in ({"alg": "none", "typ": "JWT"}, claims)]
        return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts) + "."

    def by_public_key(self, claims: dict[str, Any]) -> str:
        """Return the claims signed with HS256 by what everybody knows: the public key."""
        secret = self.keys["first"].as_pem(private=False)
        parts = [json.dumps(part).encode() for part in ({"alg": "HS256", "kid": "first"}, claims)]
        body = b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in parts)
        mac = hmac.digest(secret, body, "sha256")
        return (body + b"." + base64.urlsafe_b64encode(mac).rstrip(b"=")).decode()


class Door(http.server.BaseHTTPRequestHandler):
    """The provider's doors."""

    of: Provider

    def do_GET(self) -> None:
        provider, path = self.of, urlsplit(self.path).path.removeprefix("/realms/test")
        provider.asked.append(path)
        if path in provider.answers:
            provider.answers[path](self)
        elif path == "/.well-known/openid-configuration":
            self.say(provider.description())
        elif path == "/keys":
            self.say({"keys": [provider.keys[name].as_dict(private=False) for name in provider.listed]})
        elif path == "/auth" and provider.asks and "pressed" not in self.path:
            self.page(f'<a href="{self.path}&amp;pressed=1">I am {provider.person["preferred_username"]}</a>')
        elif path == "/auth":
            asked = dict(parse_qsl(urlsplit(self.path).query))
            self.lead(f"{asked['redirect_uri']}?{urlencode(provider.authorize(self.path))}")
        elif path == "/logout":
            self.lead(dict(parse_qsl(urlsplit(self.path).query))["post_logout_redirect_uri"])
        else:
            self.say({}, 404)

    def do_POST(self) -> None:
        provider, path = self.of, urlsplit(self.path).path.removeprefix("/realms/test")
        sent = dict(parse_qsl(self.rfile.read(int(self.headers["Content-Length"])).decode()))
        provider.asked.append(path)
        if path in provider.answers:
            provider.answers[path](self)
            return
        token = provider.redeem(sent, self.headers.get("Authorization", ""))
        self.say(token or {"error": "invalid_grant"}, 200 if token else 400)

    def say(self, body: object, status: int = 200) -> None:
        self.send(status, "application/json", json.dumps(body).encode())

    def page(self, body: str) -> None:
        self.send(200, "text/html", f"<title>provider</title><link rel=icon href=data:,>{body}".encode())

    def send(self, status: int, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def lead(self, address: str) -> None:
        self.send_response(302)
        self.send_header("Location", address)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_said: object) -> None:
        """Say nothing."""
