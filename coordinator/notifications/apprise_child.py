"""A process of its own that hands one message to one service through Apprise, and ends.

Services' plugins make their own requests. So they do it where little can be reached: an audit hook, which Python code
cannot take away, lets them connect over TCP to addresses that were checked and read the program's own libraries, and
refuses everything else: internal addresses, whatever name or redirect led there, other sockets, files, programs. The
process has an empty environment, so no proxy and no home folder, and limits of memory and time. It is a fence
for libraries that mean well and addresses that may not; against code that breaks out of Python it is none.

One JSON object on standard input: `url`, `schemas` (which are allowed), `networks` (internal ones that may be reached)
and, to send, `title` and `text`. One on standard output: `service`, `schema` and `host`, and `outcome` where it was
sent; or `problem`, never in the receiver's words, and `why` of one. It imports nothing that knows Django or settings.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import socket
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import apprise
import certifi
from apprise.manager_plugins import NotificationManager
from requests.adapters import HTTPAdapter

from coordinator.lib.internal_addresses import forbidden_destination_reason_or_empty, parse_ip_address
from coordinator.lib.network_words import describe_network_error

SECONDS = 20  # of processor time; the parent watches the clock
MEMORY = 1 << 30  # bytes of address space: an answer without end must not fill the machine
READING_ONLY = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# What a message needs none of: programs, other processes, other sockets, changes to files.
REFUSED = (
    "ctypes.dlopen",
    "os.",
    "pty.",
    "shutil.",
    "socket.bind",
    "socket.sendto",
    "socket.sendmsg",
    "subprocess.",
)
HARMLESS = ("os.listdir", "os.scandir", "os.putenv", "os.unsetenv", "os.add_dll_directory", "os.walk")


class FenceRefused(OSError):
    """Something that a message needs none of was tried; libraries take it for a failed connection or file."""


class AuditHookFence:
    """What this process may reach; and why it was stopped, in words for people."""

    def __init__(self, networks: Sequence[str], libraries: Sequence[str]) -> None:
        self.networks = networks
        self.libraries = tuple(f"{os.path.realpath(library)}{os.sep}" for library in libraries)
        self.why = ""

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        """Check an audit event, which Python reports before it does what the event names."""
        if event == "socket.connect":
            self.require_allowed_connection(args[1])
        elif event == "open":
            self.require_allowed_file_open(args[0], args[2])
        elif event.startswith(REFUSED) and event not in HARMLESS:
            raise FenceRefused(f"{event} is refused")

    def require_allowed_connection(self, socket_address: Any) -> None:
        try:
            address = parse_ip_address(str(socket_address[0]))
        except (TypeError, ValueError, IndexError):  # a name, or a socket that is no network's
            raise FenceRefused("only checked addresses") from None
        if address_problem := forbidden_destination_reason_or_empty(address, self.networks):
            self.why = address_problem
            raise FenceRefused(address_problem)

    def require_allowed_file_open(self, path: Any, flags: Any) -> None:
        if isinstance(path, int):
            return  # open already
        real = os.path.realpath(os.fsdecode(path))
        if (isinstance(flags, int) and flags & READING_ONLY) or not real.startswith(self.libraries):
            raise FenceRefused(f"{real} is not for messages")


class RequestOutcomeRecorder:
    """What came of the requests that a service's plugin made: the last one counts."""

    def __init__(self) -> None:
        self.outcome = ""

    def patch_http_adapter_to_record_outcomes(self) -> None:
        send = HTTPAdapter.send

        def send_and_record(adapter: Any, *args: Any, **options: Any) -> Any:
            try:
                response = send(adapter, *args, **options)
            except Exception as problem:
                self.outcome = describe_network_error(root_network_error_or_original(problem))
                raise
            self.outcome = f"answered {response.status_code}"
            return response

        HTTPAdapter.send = send_and_record  # type: ignore[method-assign, assignment]


def root_network_error_or_original(problem: BaseException) -> BaseException:
    """Return what a library's errors are about: the error that began them, where it is one of the network."""
    cause: BaseException | None = problem
    error = problem
    while cause is not None:
        if isinstance(cause, OSError) and not type(cause).__module__.startswith("requests"):
            error = cause
        cause = cause.__cause__ or cause.__context__
    return TimeoutError() if "Timeout" in type(problem).__name__ else error


def main() -> None:
    """Do what standard input says and report the outcome.

    Names are looked up by C code that no audit hook sees; the addresses that it finds are checked when they are
    connected to.
    """
    socket.setdefaulttimeout(10)
    order = json.loads(sys.stdin.buffer.read())
    output = sys.stdout
    sys.stdout = sys.stderr  # libraries talk there, to nobody
    logging.disable(logging.CRITICAL)
    json.dump(run_fenced_apprise_order(order), output)
    output.flush()
    os._exit(0)  # no thread of a library holds it up


def run_fenced_apprise_order(order: Mapping[str, Any]) -> dict[str, str]:
    """Build the fence, then read the address and, where there is a text, send it."""
    plugins: Any = NotificationManager()  # type: ignore[no-untyped-call]
    plugins.load_modules()
    wire, fence = (
        RequestOutcomeRecorder(),
        AuditHookFence(order["networks"], [sys.prefix, sys.base_prefix, os.path.dirname(certifi.where())]),
    )
    wire.patch_http_adapter_to_record_outcomes()
    for kind in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE):
        resource.setrlimit(kind, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    sys.addaudithook(fence)
    asset = apprise.AppriseAsset(
        app_id="Signalbox",
        app_desc="Signalbox",
        app_url="",
        image_url_mask="",
        image_url_logo="",
        async_mode=False,
        http_redirects=False,
        allow_templates=False,
        pem_autogen=False,
        pgp_autogen=False,
        storage_mode="memory",
        service_timeout=SECONDS,
        language="en",
        timezone="UTC",
    )
    service = apprise.Apprise.instantiate(order["url"], asset=asset, suppress_exceptions=True)
    if service is None:
        return {"problem": "incomplete"}
    allowed_service = allowed_service_fields_or_none(service, order["schemas"])
    if allowed_service is None:
        return {"problem": "not allowed"}
    if "text" not in order:
        refusal_reason = explain_internal_host(service, order["networks"])
        return {"problem": "internal", "why": refusal_reason} if refusal_reason else allowed_service
    service.overflow_mode = apprise.OverflowMode.TRUNCATE  # one message, never several
    box = apprise.Apprise(asset=asset)
    box.add(service)
    was_sent = box.notify(
        title=order["title"],
        body=order["text"],
        body_format=apprise.NotifyFormat.TEXT,
        interpret_escapes=False,
    )
    if was_sent:
        return {**allowed_service, "outcome": wire.outcome or "handed over"}
    return {**allowed_service, "problem": fence.why or wire.outcome or "failed before anything was sent"}


def explain_internal_host(service: Any, networks: Sequence[str]) -> str:
    """Say why nothing is sent to the host that an address names, where that is an address itself; names are looked up
    when they are connected to.
    """
    host = getattr(service, "host", None)
    if not isinstance(host, str) or not has_self_hosted_address(service):
        return ""
    try:
        bare = "127.0.0.1" if host == "localhost" or host.endswith(".localhost") else host.strip("[]")
        return forbidden_destination_reason_or_empty(parse_ip_address(bare), networks)
    except ValueError:
        return ""


def has_self_hosted_address(service: Any) -> bool:
    return any("{host}" in template for template in service.templates)


def allowed_service_fields_or_none(service: Any, schemas: Sequence[str]) -> dict[str, str] | None:
    """Return which service it is and, of one that people run themselves, on which host; None for others' schemas."""
    names: set[str] = set()
    for known_protocol in (service.protocol, service.secure_protocol):
        names |= {known_protocol} if isinstance(known_protocol, str) else set(known_protocol or ())
    schema = next((schema_name for schema_name in schemas if schema_name in names), None)
    if schema is None:
        return None
    host = getattr(service, "host", None)
    # Without a dot it may as well be a topic, which is a secret.
    shown_host = (
        host
        if has_self_hosted_address(service) and isinstance(host, str) and ("." in host or host == "localhost")
        else ""
    )
    return {"service": str(service.service_name), "schema": schema, "host": shown_host[:100]}


if __name__ == "__main__":
    main()
