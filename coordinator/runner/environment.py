"""The environment that agents are started with: an allow list, and never a key of Signalbox's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from coordinator.runner.startable import StartableAgent

ALWAYS = (
    "HOME",
    "PATH",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "LC_*",
    "TERM",
    "COLORTERM",
    "TZ",
    "TMPDIR",
    "XDG_*",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
)
SESSION = "SIGNALBOX_SESSION"
MARK = "SIGNALBOX_STARTED_BY"
OURS = "SIGNALBOX_"


def build_agent_environment(
    agent: StartableAgent,
    environ: Mapping[str, str],
    *,
    passes: Iterable[str],
    key: str,
    session_id: str,
    mark: str,
) -> dict[str, str]:
    """Return an agent's environment, out of the runner's own.

    A variable of ours is never passed on, and none whose value holds `key`, whatever the settings name.
    `session_id` and `mark` show hooks and the guard whose process it is.
    """
    allowed = (*ALWAYS, *agent.passes, *passes)
    base_variables = {
        name: value
        for name, value in environ.items()
        if any(matches_variable_pattern(name, variable_pattern) for variable_pattern in allowed)
    }
    base_variables |= agent.env
    passed_variables = {
        name: value
        for name, value in base_variables.items()
        if not name.startswith(OURS) and not (key and key in value)
    }
    return {**passed_variables, SESSION: session_id, MARK: mark}


def matches_variable_pattern(name: str, allowed: str) -> bool:
    return name.startswith(allowed[:-1]) if allowed.endswith("*") else name == allowed
