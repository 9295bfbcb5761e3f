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


class ServerNotAnswering(Exception):
    """The server cannot be reached, is silent, or breaks off; the text says which."""


class InvalidServerAnswer(Exception):
    """What answered is no answer of Signalbox."""


class HttpAnswer:
    """An answer's status, headers (lower-case names) and body."""

    __slots__ = ("body", "headers", "status")

    def __init__(self, status: int, headers: dict[str, str], body: bytes = b"") -> None:
        self.status = status
        self.headers = headers
        self.body = body


class ServerAddress:
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
    def is_local_host(self) -> bool:
        """Whether it is this machine, in any form that the system takes: 127.0.0.0/8, ::1, and names of localhost."""
        return self.has_localhost_name or is_loopback_host(self.host)

    @property
    def has_localhost_name(self) -> bool:
        host = self.host.lower().rstrip(".")
        return host == "localhost" or host.endswith(".localhost")

    def socket_addresses(self) -> list[tuple[str, int]]:
        """Return where to connect, in this order; every `….localhost` is this machine, whatever a resolver says."""
        if self.has_localhost_name:
            return [("127.0.0.1", self.port), ("::1", self.port)]
        return [(self.host, self.port)]


def replace_localhost_subdomain(url: str) -> str:
    """Return the address with 127.0.0.1 for a name under `.localhost`, which browsers find, and Node does not."""
    scheme, _, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    host, colon, port = authority.partition(":")
    if host.lower().rstrip(".").endswith(".localhost"):
        authority = f"127.0.0.1{colon}{port}"
    return f"{scheme}://{authority}{slash}{path}"


def is_loopback_host(host: str) -> bool:
    with contextlib.suppress(OSError, ValueError):
        return socket.inet_aton(host)[0] == 127
    with contextlib.suppress(OSError, ValueError):
        return socket.inet_pton(socket.AF_INET6, host) == LOOPBACK_6
    return False


class SingleRequestConnection:
    """A connection for one request. `until` is when (monotonic) it must be done, whatever happens; it may be moved."""

    def __init__(self, address: ServerAddress, until: float) -> None:
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
        """Post and return the answer. Raises ServerNotAnswering and InvalidServerAnswer.

        `patience` is for how many seconds nothing may come before the answer's head. `begun` is called with that, and
        says for how long the server may be silent from then on.
        """
        try:
            self._connect_directly_or_through_proxy(min(self.until, time.monotonic() + patience))
            target = self._request_target_prefix() + self._address.path + path
            lines = [f"POST {target} HTTP/1.1", f"Host: {self._address.netloc}", "Connection: close"]
            lines += [f"{name}: {value}" for name, value in headers.items()]
            lines += ["Content-Type: application/json", f"Content-Length: {len(body)}", "", ""]
            with contextlib.suppress(ConnectionError):  # it may have answered before it read all
                self._send_bytes("\r\n".join(lines).encode("latin-1") + body, patience)
            answer = self._read_answer_head(patience)
            if begun is not None:
                patience = begun(answer)
            answer.body = self._read_answer_body(answer, patience)
            return answer
        except TimeoutError:
            raise ServerNotAnswering(f"{self._address.netloc} does not answer") from None
        except OSError as problem:
            raise ServerNotAnswering(describe_connection_error(problem, self._address)) from None
        finally:
            self.close()

    # --- connecting -------------------------------------------------------------------------------------------

    def _connect_directly_or_through_proxy(self, until: float) -> None:
        proxy = find_environment_proxy(self._address)
        problem: OSError = OSError("no address")
        for socket_address in (proxy or self._address).socket_addresses():
            try:
                self._socket = socket.create_connection(socket_address, max(0.01, until - time.monotonic()))
                break
            except OSError as open_error:
                problem = open_error
        if self._socket is None:
            raise problem
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._address.scheme == "https":
            self._open_tunnel_and_start_tls(until, through=proxy)

    def _open_tunnel_and_start_tls(self, until: float, *, through: ServerAddress | None) -> None:
        import ssl  # noqa: PLC0415 - takes its time, and most servers are on this machine

        assert self._socket is not None
        self._socket.settimeout(max(0.01, until - time.monotonic()))
        if through is not None:
            host = f"{self._address.host}:{self._address.port}"
            self._socket.sendall(f"CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode("latin-1"))
            answer = self._read_answer_head(max(0.01, until - time.monotonic()))
            if answer.status != 200:
                raise OSError(f"the proxy {through.netloc} refuses ({answer.status})")
            self._received = b""
        context = ssl.create_default_context()
        self._socket = context.wrap_socket(self._socket, server_hostname=self._address.host)

    def _request_target_prefix(self) -> str:
        """Return the request target's prefix: the server, for a proxy that forwards plain HTTP."""
        plain = self._address.scheme == "http" and find_environment_proxy(self._address) is not None
        return f"http://{self._address.netloc}" if plain else ""

    # --- reading ----------------------------------------------------------------------------------------------

    def _send_bytes(self, data: bytes, patience: float) -> None:
        assert self._socket is not None
        self._socket.settimeout(self.require_remaining_wait_seconds(patience))
        self._socket.sendall(data)

    def require_remaining_wait_seconds(self, patience: float) -> float:
        remaining_seconds = self.until - time.monotonic()
        if remaining_seconds <= 0:
            raise TimeoutError
        return min(remaining_seconds, patience)

    def _receive_bytes(self, patience: float) -> bytes:
        assert self._socket is not None
        self._socket.settimeout(self.require_remaining_wait_seconds(patience))
        return self._socket.recv(65_536)

    def _read_answer_head(self, patience: float) -> HttpAnswer:
        while True:
            while b"\r\n\r\n" not in self._received:
                if len(self._received) > LARGEST_HEAD:
                    raise InvalidServerAnswer("its headers are too large")
                more = self._receive_bytes(patience)
                if not more:
                    raise ServerNotAnswering(f"{self._address.netloc} hung up")
                self._received += more
            head, _, self._received = self._received.partition(b"\r\n\r\n")
            answer = parse_http_answer_head(head.decode("latin-1"))
            if answer.status >= 200:
                return answer

    def _read_answer_body(self, answer: HttpAnswer, patience: float) -> bytes:
        if "chunked" in answer.headers.get("transfer-encoding", "").lower():
            return self._read_chunked_body(patience)
        length = answer.headers.get("content-length")
        if answer.status in (204, 304):
            return b""
        if length is None or not length.isdigit():
            raise InvalidServerAnswer("it does not say how long its answer is")
        return self._read_exact_bytes(int(length), patience)

    def _read_chunked_body(self, patience: float) -> bytes:
        body = b""
        while True:
            size = self._read_buffered_line(patience).partition(b";")[0].strip()
            try:
                length = int(size, 16)
            except ValueError:
                raise InvalidServerAnswer("its answer is garbled") from None
            if length == 0:
                return body
            body += self._read_exact_bytes(length, patience)
            if len(body) > LARGEST_BODY:
                raise InvalidServerAnswer("its answer is too large")
            self._read_buffered_line(patience)

    def _read_buffered_line(self, patience: float) -> bytes:
        while b"\n" not in self._received:
            if len(self._received) > LARGEST_HEAD:
                raise InvalidServerAnswer("its answer is garbled")
            self._fill_receive_buffer(patience)
        line, _, self._received = self._received.partition(b"\n")
        return line

    def _read_exact_bytes(self, length: int, patience: float) -> bytes:
        if length > LARGEST_BODY or length < 0:
            raise InvalidServerAnswer("its answer is too large")
        while len(self._received) < length:
            self._fill_receive_buffer(patience)
        received, self._received = self._received[:length], self._received[length:]
        return received

    def _fill_receive_buffer(self, patience: float) -> None:
        more = self._receive_bytes(patience)
        if not more:
            raise ServerNotAnswering(f"{self._address.netloc} broke off before its answer")
        self._received += more


def parse_http_answer_head(head: str) -> HttpAnswer:
    first, *lines = head.split("\r\n")
    version, _, rest = first.partition(" ")
    status = rest[:3]
    if not version.startswith("HTTP/1.") or not (status.isascii() and status.isdigit()):
        raise InvalidServerAnswer("it does not speak HTTP")
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    return HttpAnswer(int(status), headers)


def find_environment_proxy(address: ServerAddress) -> ServerAddress | None:
    """Return the proxy that the environment names for this server; none for this machine. Raises OSError."""
    if address.is_local_host:
        return None
    for variable in (f"{address.scheme}_proxy", f"{address.scheme.upper()}_PROXY", "all_proxy", "ALL_PROXY"):
        if variable == "HTTP_PROXY" and "REQUEST_METHOD" in os.environ:
            continue  # in a CGI program a stranger's header sets it
        proxy_url = os.environ.get(variable, "").strip()
        if proxy_url and not is_excluded_from_proxy(address.host.lower()):
            try:
                proxy = ServerAddress(proxy_url if "://" in proxy_url else f"http://{proxy_url}")
            except ValueError:
                proxy = None
            if proxy is None or proxy.scheme != "http":
                raise OSError(f"the proxy that {variable} names cannot be used")
            return proxy
    return None


def is_excluded_from_proxy(host: str) -> bool:
    for variable in ("no_proxy", "NO_PROXY"):
        for part in os.environ.get(variable, "").lower().split(","):
            name = part.strip().lstrip(".")
            if name == "*" or (name and (host == name or host.endswith(f".{name}"))):
                return True
    return False


def describe_connection_error(problem: OSError, address: ServerAddress) -> str:
    where = address.netloc
    verify = getattr(problem, "verify_message", "")
    if verify:
        return f"the certificate of {where} does not fit ({verify})"
    return f"{where} cannot be reached ({problem.strerror or problem})"
