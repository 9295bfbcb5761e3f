"""One HTTP request on a connection of its own: `http.client` and `urllib` load more slowly than the command may take.

No redirect is followed: a key goes to the server that it is for, and nowhere else. A proxy of the environment is used,
but never for this machine.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time

TYPE_CHECKING = False  # `typing` takes longer to load than the rest of this module
if TYPE_CHECKING:
    from collections.abc import Callable

LARGEST_HEAD = 64 * 1024  # bytes of an answer's headers
LARGEST_BODY = 8 << 20
PORTS = {"http": 80, "https": 443}
LOOPBACK_6 = bytes(15) + b"\x01"  # ::1


class Away(Exception):
    """The server cannot be reached, is silent, or breaks off; the text says which."""


class Broken(Exception):
    """What answered is no answer of Signalbox."""


class HttpAnswer:
    """An answer's status, headers (lower-case names) and body."""

    __slots__ = ("body", "headers", "status")

    def __init__(self, status: int, headers: dict[str, str], body: bytes = b"") -> None:
        self.status = status
        self.headers = headers
        self.body = body


class Address:
    """The parts of a server's address, http or https. Raises ValueError where it is none."""

    __slots__ = ("host", "path", "port", "scheme")

    def __init__(self, url: str) -> None:
        scheme, separator, rest = url.partition("://")
        self.scheme = scheme.lower()
        place, slash, path = rest.partition("/")
        if self.scheme not in PORTS or not separator or not place or "@" in place:
            raise ValueError(url)
        self.path = (slash + path).rstrip("/")
        if place.startswith("["):
            self.host, _, port = place[1:].partition("]")
            port = port.removeprefix(":")
        else:
            self.host, _, port = place.partition(":")
        if not self.host or any(sign <= " " for sign in url):
            raise ValueError(url)
        if port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65_536):
            raise ValueError(url)
        self.port = int(port) if port else PORTS[self.scheme]

    @property
    def netloc(self) -> str:
        """Host and port, as in an address."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def is_here(self) -> bool:
        """Whether it is this machine, in any form that the system takes: 127.0.0.0/8, ::1, and names of localhost."""
        return self._is_named_localhost or _is_loopback(self.host)

    @property
    def _is_named_localhost(self) -> bool:
        host = self.host.lower().rstrip(".")
        return host == "localhost" or host.endswith(".localhost")

    def places(self) -> list[tuple[str, int]]:
        """Return where to connect, in this order; every `….localhost` is this machine, whatever a resolver says."""
        if self._is_named_localhost:
            return [("127.0.0.1", self.port), ("::1", self.port)]
        return [(self.host, self.port)]


def address_for_agents(url: str) -> str:
    """Return the address with 127.0.0.1 for a name under `.localhost`, which browsers find, and Node does not."""
    scheme, _, rest = url.partition("://")
    place, slash, path = rest.partition("/")
    host, colon, port = place.partition(":")
    if host.lower().rstrip(".").endswith(".localhost"):
        place = f"127.0.0.1{colon}{port}"
    return f"{scheme}://{place}{slash}{path}"


def _is_loopback(host: str) -> bool:
    with contextlib.suppress(OSError, ValueError):
        return socket.inet_aton(host)[0] == 127
    with contextlib.suppress(OSError, ValueError):
        return socket.inet_pton(socket.AF_INET6, host) == LOOPBACK_6
    return False


class Connection:
    """A connection for one request. `until` is when (monotonic) it must be done, whatever happens; it may be moved."""

    def __init__(self, address: Address, until: float) -> None:
        self._address = address
        self.until = until
        self._socket: socket.socket | None = None
        self._received = b""

    def close(self) -> None:
        """Hang up."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def post(
        self,
        path: str,
        headers: dict[str, str],
        body: bytes,
        *,
        patience: float,
        begun: Callable[[HttpAnswer], float] | None = None,
    ) -> HttpAnswer:
        """Post and return the answer. Raises Away and Broken.

        `patience` is for how many seconds nothing may come before the answer's head. `begun` is called with that, and
        says for how long the server may be silent from then on.
        """
        try:
            self._connect(min(self.until, time.monotonic() + patience))
            target = self._target() + self._address.path + path
            lines = [f"POST {target} HTTP/1.1", f"Host: {self._address.netloc}", "Connection: close"]
            lines += [f"{name}: {value}" for name, value in headers.items()]
            lines += ["Content-Type: application/json", f"Content-Length: {len(body)}", "", ""]
            with contextlib.suppress(ConnectionError):  # it may have answered before it read all
                self._send("\r\n".join(lines).encode("latin-1") + body, patience)
            answer = self._head(patience)
            if begun is not None:
                patience = begun(answer)
            answer.body = self._body(answer, patience)
            return answer
        except TimeoutError:
            raise Away(f"{self._address.netloc} does not answer") from None
        except OSError as problem:
            raise Away(_in_words(problem, self._address)) from None
        finally:
            self.close()

    # --- connecting -------------------------------------------------------------------------------------------

    def _connect(self, until: float) -> None:
        proxy = proxy_for(self._address)
        problem: OSError = OSError("no address")
        for place in (proxy or self._address).places():
            try:
                self._socket = socket.create_connection(place, max(0.01, until - time.monotonic()))
                break
            except OSError as found:
                problem = found
        if self._socket is None:
            raise problem
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._address.scheme == "https":
            self._encrypt(until, through=proxy)

    def _encrypt(self, until: float, *, through: Address | None) -> None:
        import ssl  # noqa: PLC0415 - takes its time, and most servers are on this machine

        assert self._socket is not None
        self._socket.settimeout(max(0.01, until - time.monotonic()))
        if through is not None:
            host = f"{self._address.host}:{self._address.port}"
            self._socket.sendall(f"CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode("latin-1"))
            answer = self._head(max(0.01, until - time.monotonic()))
            if answer.status != 200:
                raise OSError(f"the proxy {through.netloc} refuses ({answer.status})")
            self._received = b""
        context = ssl.create_default_context()
        self._socket = context.wrap_socket(self._socket, server_hostname=self._address.host)

    def _target(self) -> str:
        """Return the request target's prefix: the server, for a proxy that forwards plain HTTP."""
        plain = self._address.scheme == "http" and proxy_for(self._address) is not None
        return f"http://{self._address.netloc}" if plain else ""

    # --- reading ----------------------------------------------------------------------------------------------

    def _send(self, data: bytes, patience: float) -> None:
        assert self._socket is not None
        self._socket.settimeout(self._left(patience))
        self._socket.sendall(data)

    def _left(self, patience: float) -> float:
        left = self.until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return min(left, patience)

    def _more(self, patience: float) -> bytes:
        assert self._socket is not None
        self._socket.settimeout(self._left(patience))
        return self._socket.recv(65_536)

    def _head(self, patience: float) -> HttpAnswer:
        while True:
            while b"\r\n\r\n" not in self._received:
                if len(self._received) > LARGEST_HEAD:
                    raise Broken("its headers are too large")
                more = self._more(patience)
                if not more:
                    raise Away(f"{self._address.netloc} hung up")
                self._received += more
            head, _, self._received = self._received.partition(b"\r\n\r\n")
            answer = _parsed(head.decode("latin-1"))
            if answer.status >= 200:
                return answer

    def _body(self, answer: HttpAnswer, patience: float) -> bytes:
        if "chunked" in answer.headers.get("transfer-encoding", "").lower():
            return self._chunks(patience)
        length = answer.headers.get("content-length")
        if answer.status in (204, 304):
            return b""
        if length is None or not length.isdigit():
            raise Broken("it does not say how long its answer is")
        return self._exactly(int(length), patience)

    def _chunks(self, patience: float) -> bytes:
        whole = b""
        while True:
            size = self._line(patience).partition(b";")[0].strip()
            try:
                length = int(size, 16)
            except ValueError:
                raise Broken("its answer is garbled") from None
            if length == 0:
                return whole
            whole += self._exactly(length, patience)
            if len(whole) > LARGEST_BODY:
                raise Broken("its answer is too large")
            self._line(patience)

    def _line(self, patience: float) -> bytes:
        while b"\n" not in self._received:
            if len(self._received) > LARGEST_HEAD:
                raise Broken("its answer is garbled")
            self._receive_more(patience)
        line, _, self._received = self._received.partition(b"\n")
        return line

    def _exactly(self, length: int, patience: float) -> bytes:
        if length > LARGEST_BODY or length < 0:
            raise Broken("its answer is too large")
        while len(self._received) < length:
            self._receive_more(patience)
        found, self._received = self._received[:length], self._received[length:]
        return found

    def _receive_more(self, patience: float) -> None:
        more = self._more(patience)
        if not more:
            raise Away(f"{self._address.netloc} broke off before its answer")
        self._received += more


def _parsed(head: str) -> HttpAnswer:
    first, *lines = head.split("\r\n")
    version, _, rest = first.partition(" ")
    status = rest[:3]
    if not version.startswith("HTTP/1.") or not (status.isascii() and status.isdigit()):
        raise Broken("it does not speak HTTP")
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    return HttpAnswer(int(status), headers)


def proxy_for(address: Address) -> Address | None:
    """Return the proxy that the environment names for this server; none for this machine. Raises OSError."""
    if address.is_here:
        return None
    for variable in (f"{address.scheme}_proxy", f"{address.scheme.upper()}_PROXY", "all_proxy", "ALL_PROXY"):
        if variable == "HTTP_PROXY" and "REQUEST_METHOD" in os.environ:
            continue  # in a CGI program a stranger's header sets it
        named = os.environ.get(variable, "").strip()
        if named and not _is_spared(address.host.lower()):
            try:
                proxy = Address(named if "://" in named else f"http://{named}")
            except ValueError:
                proxy = None
            if proxy is None or proxy.scheme != "http":
                raise OSError(f"the proxy that {variable} names cannot be used")
            return proxy
    return None


def _is_spared(host: str) -> bool:
    for variable in ("no_proxy", "NO_PROXY"):
        for part in os.environ.get(variable, "").lower().split(","):
            name = part.strip().lstrip(".")
            if name == "*" or (name and (host == name or host.endswith(f".{name}"))):
                return True
    return False


def _in_words(problem: OSError, address: Address) -> str:
    where = address.netloc
    verify = getattr(problem, "verify_message", "")
    if verify:
        return f"the certificate of {where} does not fit ({verify})"
    return f"{where} cannot be reached ({problem.strerror or problem})"
