"""The server's address and key, from the file that `signalbox connect` wrote, or from the environment.

The file is `~/.config/signalbox/client.json` (`$XDG_CONFIG_HOME` moves it):

{"url": "https://…", "key": "sbx_…", "agents": {"codex": {"hold": true}}, "environment": {"HOME":
"/home/anna"}}

The agents that `connect` has set up name the file itself (`--settings`, `use_settings_file_and_its_environment`). Then
nothing counts of the environment, which a project's settings can change: `environment` is what it was when a person
connected. Without `--settings` a hook still prefers the file; programs that people start themselves prefer the
variables.

`agents` is what was connected, by name, and what `connect` wants to remember of each. This module reads one
thing of it: `hold`, whether an agent's calls are held for certain while nothing was received from the server
yet (default: yes).

The file holds a key, so only its owner may read it; a file that others can read is refused, not repaired: the
key in it is known already.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat

from coordinator.client.connection import ServerAddress

TYPE_CHECKING = False  # `typing` takes longer to load than the rest of this module
if TYPE_CHECKING:
    from typing import Any

URL_VARIABLE, KEY_VARIABLE = "SIGNALBOX_URL", "SIGNALBOX_KEY"
OTHERS = 0o077
PROXY_VARIABLES = tuple(
    name
    for plain in ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
    for name in (plain, plain.upper())
)
# What is remembered of the environment in which a person connected, because the server is reached by it.
REMEMBERED_VARIABLES = ("HOME", "XDG_STATE_HOME", "SSL_CERT_FILE", "SSL_CERT_DIR", *PROXY_VARIABLES)
# Other variables that decide which server is reached, or what OpenSSL loads.
OTHER_VARIABLES = (
    URL_VARIABLE, KEY_VARIABLE, "XDG_CONFIG_HOME",
    "OPENSSL_CONF", "OPENSSL_MODULES", "OPENSSL_ENGINES", "SSLKEYLOGFILE",
)  # fmt: skip
LARGEST = 1 << 20  # bytes of the settings file that are read


class NotConnected(Exception):
    """There is no server to talk with; the text says what to do."""


class ClientSettings:
    """The server's address (no slash at its end), the key ("" where none is needed), and what `connect` wrote.

    `agents` are the connected ones by name, `environment` the REMEMBERED_VARIABLES of the person who connected.
    """

    __slots__ = ("agents", "environment", "key", "url")

    def __init__(
        self,
        url: str,
        key: str,
        agents: dict[str, dict[str, Any]] | None = None,
        environment: dict[str, str] | None = None,
    ) -> None:
        self.url = url
        self.key = key
        self.agents = agents or {}
        self.environment = environment or {}

    @property
    def server_state_folder(self) -> str:
        """Where this server's state is kept; another server, or another key, has another folder."""
        known_as = hashlib.sha256(f"{self.url}\n{self.key}".encode()).hexdigest()[:16]
        return os.path.join(client_state_folder(), known_as)

    def should_block_offline_by_default(self, agent: str) -> bool:
        """Say whether the agent's calls are held for certain before the server has said which are."""
        return self.agents.get(agent, {}).get("hold", True) is not False


_chosen_path: str | None = None


def use_settings_file_and_its_environment(path: str) -> None:
    """Use this settings file from now on, and the environment that it remembers instead of this process's own."""
    global _chosen_path  # noqa: PLW0603 - once, as the process starts
    _chosen_path = os.path.abspath(path)
    for name in (*REMEMBERED_VARIABLES, *OTHER_VARIABLES):
        os.environ.pop(name, None)  # without HOME, `~` is the home in the system's list of users
    try:
        stored = read_client_settings_or_none()
    except NotConnected:
        return  # code that needs the settings reads them, and says what is wrong
    if stored is not None:
        os.environ.update(stored.environment)


def collect_connection_environment() -> dict[str, str]:
    """Return what of the environment is kept with the connection."""
    values = {name: os.environ.get(name, "") for name in REMEMBERED_VARIABLES}
    values["HOME"] = os.path.expanduser("~")
    return {name: value for name, value in values.items() if value}


def client_settings_path() -> str:
    """Return the path of the settings file."""
    return _chosen_path or os.path.join(
        xdg_base_folder("XDG_CONFIG_HOME", ".config"), "signalbox", "client.json"
    )


def make_private_folder(path: str) -> None:
    """Make a folder, and those above that are missing, for this user alone, whatever the umask. Raises OSError.

    `os.makedirs` would leave the ones above to the umask, and who can write there can replace what is below.
    """
    parent = os.path.dirname(path)
    if parent and not os.path.isdir(parent):
        make_private_folder(parent)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)


def client_state_folder() -> str:
    """Return the folder for the state of local programs: the spool, and which calls are held for certain."""
    return os.path.join(xdg_base_folder("XDG_STATE_HOME", os.path.join(".local", "state")), "signalbox")


def resolve_client_settings(*, prefer_file: bool = False) -> ClientSettings:
    """Return the settings: the environment's before the file's, or the other way round.

    Raises NotConnected where there are none, or others can read the file.
    """
    url = os.environ.get(URL_VARIABLE, "").strip().rstrip("/")
    key = os.environ.get(KEY_VARIABLE, "").strip()
    stored = read_client_settings_or_none()
    if stored is None:
        if not url:
            raise NotConnected(f"Signalbox is not connected: run `signalbox connect`, or set {URL_VARIABLE}.")
        return ClientSettings(require_valid_server_url(url), require_sendable_key(key))
    if prefer_file:
        return ClientSettings(
            require_valid_server_url(stored.url),
            require_sendable_key(stored.key),
            stored.agents,
            stored.environment,
        )
    # The file's key is for the file's server: another one must not learn it.
    if not key and (not url or url == stored.url):
        key = stored.key
    return ClientSettings(
        require_valid_server_url(url or stored.url),
        require_sendable_key(key),
        stored.agents,
        stored.environment,
    )


def read_client_settings_or_none() -> ClientSettings | None:
    """Return what the settings file says, None where there is none. Raises NotConnected."""
    path = client_settings_path()
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise NotConnected(f"{path} cannot be read: {problem.strerror}.") from None
    with open(descriptor, "rb") as file:
        require_private_settings(path, os.fstat(descriptor))
        try:
            value = json.loads(file.read(LARGEST))
        except (ValueError, RecursionError):
            value = None
    settings = parse_client_settings_or_none(value)
    if settings is None:
        raise NotConnected(f"{path} cannot be understood. Run `signalbox connect` again.")
    return settings


def save_client_settings(settings: ClientSettings) -> None:
    """Write the settings file, whole or not at all, for its owner alone. Raises OSError."""
    value = {
        "url": settings.url,
        "key": settings.key,
        "agents": settings.agents,
        "environment": settings.environment,
    }
    write_private_file(client_settings_path(), json.dumps(value, indent=2).encode() + b"\n")


def write_private_file(path: str, content: bytes) -> None:
    """Write a file that only its owner can read, whole or not at all; makes its folder. Raises OSError."""
    folder = os.path.dirname(path)
    make_private_folder(folder)
    aside = f"{path}.{os.getpid()}"
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    try:
        with open(descriptor, "wb") as file:
            os.fchmod(descriptor, 0o600)
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        os.replace(aside, path)
    except BaseException:
        os.unlink(aside)
        raise


def xdg_base_folder(variable: str, below_home: str) -> str:
    # By its specification a relative path does not count.
    folder_name = os.environ.get(variable, "")
    return folder_name if os.path.isabs(folder_name) else os.path.join(os.path.expanduser("~"), below_home)


def parse_client_settings_or_none(value: Any) -> ClientSettings | None:
    if not isinstance(value, dict):
        return None
    url, key, agents = value.get("url"), value.get("key", ""), value.get("agents", {})
    if not (isinstance(url, str) and url and isinstance(key, str) and isinstance(agents, dict)):
        return None
    agent_tables = {
        name: agent_settings for name, agent_settings in agents.items() if isinstance(agent_settings, dict)
    }
    stored = value.get("environment")
    environment = {
        name: text
        for name, text in (stored.items() if isinstance(stored, dict) else ())
        if name in REMEMBERED_VARIABLES and isinstance(text, str) and "\0" not in text
    }
    return ClientSettings(url.strip().rstrip("/"), key.strip(), agent_tables, environment)


def require_valid_server_url(url: str) -> str:
    try:
        ServerAddress(url)
    except ValueError:
        raise NotConnected(
            f"Signalbox's address must look like http://127.0.0.1:8765 or https://signalbox.example, not {url[:80]!r}."
        ) from None
    return url


def require_sendable_key(key: str) -> str:
    if not all("!" <= sign <= "~" for sign in key):
        raise NotConnected("The API key contains characters that no key has. Run `signalbox connect` again.")
    return key


def require_private_settings(path: str, file_status: os.stat_result) -> None:
    if not stat.S_ISREG(file_status.st_mode):
        raise NotConnected(f"{path} is not a file.")
    if file_status.st_mode & OTHERS or file_status.st_uid not in {0, os.geteuid()}:
        raise NotConnected(
            f"{path} holds a key and can be read by others, so it is not used. Run `chmod 600 {path}`;"
            " if others use this machine, have the key revoked and run `signalbox connect` again."
        )
