"""The MCP servers of blueprints and capabilities: values of variables and headers are sealed where they are stored.

A value that is only a placeholder (`${AGENT_SESSION_ID}`, which runners fill in) is no secret and stays as it is.
They are opened for the runner that takes a run alone; anybody else is told their names (secrets.mask_server_secrets).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from coordinator.errors import UnprocessableRequest
from coordinator.secrets import MASK, is_runner_variable_placeholder, keyring, mask_server_secrets

PARTS = ("env", "headers")
Servers = dict[str, Any]


def server_value_sealing_purpose(owner: str, server: str, part: str, name: str) -> str:
    """Return what a value is sealed for; `owner` is such as `agent NAME` or `capability NAME`."""
    return "\x1f".join(("blueprint", owner, server, part, name))


def seal_values_keeping_masked_ones(servers: Any, owner: str, stored: Any = None) -> Any:
    """Return `servers` as they are stored. A value that is only the mask stays what it is in `stored`.

    It stays only where the server's address, command and arguments do, and all its other variables and
    headers (one may name a proxy, or another address), so that nobody sends it elsewhere who could not read
    it. Raises UnprocessableRequest for a mask that stands for nothing, or whose server was changed.
    """
    servers = restore_unchanged_servers(servers, stored)
    sealed_values = {
        (server, part, name): value for server, part, name, value in iterate_server_values(stored)
    }

    def has_server_changed(server: str) -> bool:
        """Say whether a variable or header of the server is new, gone, or has another value than its mask."""
        now = {
            (part, name): value
            for server_name, part, name, value in iterate_server_values(servers)
            if server_name == server
        }
        then = {
            (part, name): value for one, part, name, value in iterate_server_values(stored) if one == server
        }
        return now.keys() != then.keys() or any(
            value != (then[place] if is_runner_variable_placeholder(value) else MASK)
            for place, value in now.items()
        )

    def seal_or_keep_value(server: str, part: str, name: str, value: str) -> str:
        if is_runner_variable_placeholder(value):
            return value
        if value != MASK:
            return keyring.seal_text_with_keyring(
                server_value_sealing_purpose(owner, server, part, name), value
            )
        if (server, part, name) not in sealed_values:
            raise UnprocessableRequest(
                f"The value of {name} of the MCP server {server} is masked. Send the value itself."
            )
        if server_without_values(servers[server]) != server_without_values(
            stored[server]
        ) or has_server_changed(server):
            raise UnprocessableRequest(
                f"The MCP server {server} was changed, so {name} is not kept: enter the value again, not {MASK}."
            )
        return sealed_values[server, part, name]

    return map_server_values(servers, seal_or_keep_value)


def server_without_values(server: Any) -> Any:
    """Return what of a server is neither variable nor header: where its values go."""
    return (
        {key: part for key, part in server.items() if key not in PARTS}
        if isinstance(server, dict)
        else server
    )


def restore_unchanged_servers(servers: Any, stored: Any) -> Any:
    """Return `servers`, those whose address, command and arguments came back as they were shown as they are stored."""
    if not isinstance(servers, dict) or not isinstance(stored, dict):
        return servers
    server_secrets = mask_server_secrets(stored)
    return {
        name: server | server_without_values(stored[name])
        if isinstance(server, dict)
        and isinstance(stored.get(name), dict)
        and server_without_values(server) == server_without_values(server_secrets[name])
        else server
        for name, server in servers.items()
    }


def unseal_server_values(servers: Any, owner: str) -> Any:
    """Return `servers` with their values. Raises UnprocessableRequest where one cannot be opened."""

    def unseal_value(server: str, part: str, name: str, value: str) -> str:
        if not keyring.is_sealed_text(value):  # stored before values were sealed
            return value
        try:
            return keyring.unseal_text_with_keyring(
                server_value_sealing_purpose(owner, server, part, name), value
            )
        except keyring.KeyringUnusable as problem:
            raise UnprocessableRequest(
                f"{name} of the MCP server {server} cannot be read: {problem}"
            ) from None

    return map_server_values(servers, unseal_value)


def reseal_server_values(servers: Any, owner: str) -> Any:
    """Return stored `servers` sealed with the newest key; those sealed with it already stay as they are."""
    newest = keyring.load_newest_key_id()

    def reseal_value(server: str, part: str, name: str, value: str) -> str:
        if is_runner_variable_placeholder(value) or (
            keyring.is_sealed_text(value) and keyring.key_id_of_sealed_text(value) == newest
        ):
            return value
        purpose = server_value_sealing_purpose(owner, server, part, name)
        return keyring.seal_text_with_keyring(
            purpose,
            keyring.unseal_text_with_keyring(purpose, value) if keyring.is_sealed_text(value) else value,
        )

    return map_server_values(servers, reseal_value)


def count_different_values(before: Any, after: Any) -> int:
    """Return in how many values of variables and headers the two differ."""
    return sum(
        before_value != other
        for before_value, other in zip(
            iterate_server_values(before), iterate_server_values(after), strict=True
        )
    )


def iterate_server_values(servers: Any) -> Iterator[tuple[str, str, str, str]]:
    if not isinstance(servers, dict):
        return
    for server, server_fields in servers.items():
        for part in PARTS:
            values = server_fields.get(part) if isinstance(server_fields, dict) else None
            for name, value in (values if isinstance(values, dict) else {}).items():
                if isinstance(value, str):
                    yield server, part, name, value


def map_server_values(servers: Any, change: Callable[[str, str, str, str], str]) -> Any:
    """Return a copy of `servers` with each value of a variable or header changed."""
    if not isinstance(servers, dict):
        return servers
    mapped_servers: Servers = {
        server: {
            key: dict(part) if key in PARTS and isinstance(part, dict) else part
            for key, part in server_fields.items()
        }
        if isinstance(server_fields, dict)
        else server_fields
        for server, server_fields in servers.items()
    }
    for server, part, name, value in iterate_server_values(servers):
        mapped_servers[server][part][name] = change(server, part, name, value)
    return mapped_servers
