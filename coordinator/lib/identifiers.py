"""The ids that Signalbox makes, in the shapes that clients know."""

from __future__ import annotations

import hashlib
import re
import unicodedata
import uuid


def new_session_id() -> str:
    """Return an id for a session: `ses_` and 12 hex digits."""
    return f"ses_{uuid.uuid4().hex[:12]}"


def new_run_id() -> str:
    """Return an id for a run: `run_` and 12 hex digits."""
    return f"run_{uuid.uuid4().hex[:12]}"


def derive_runner_id(
    hostname: str, project_dir: str, executor_profile: str, command: str | None = None
) -> str:
    """Return a runner's id, which follows from its identity, so that it is the same after a restart.

    The command counts only for the second runner at one place: its recorded clients know the id without it.
    """
    identity = f"{hostname}:{project_dir}:{executor_profile}" + ("" if command is None else f":{command}")
    return f"lnch_{hashlib.sha256(identity.encode()).hexdigest()[:12]}"


def slugify_name_as_agent_id(name: str) -> str:
    """Return the id that follows from a name, as other programs make it too: `agent.night_watch`.

    Letters outside a to z are written without their accents, or left out; a name with none left gets a short
    number of its own.
    """
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    id_words = "_".join(re.findall(r"[a-z0-9]+", plain))[:60]
    return f"agent.{id_words or hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"
