"""Records of a runner's sessions over its own restarts: which agent, and by which id the agent knows them."""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any


class SessionRecordStore:
    """One small file a session, in a folder that its owner alone can read."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def load_session_record_or_empty(self, session_id: str) -> dict[str, Any]:
        """Return what is known of a session; {} where nothing is."""
        try:
            with open(self.session_record_path(session_id), "rb") as file:
                decoded = json.loads(file.read(1 << 20))
        except (OSError, ValueError, RecursionError):
            return {}
        return decoded if isinstance(decoded, dict) else {}

    def save_session_fields(self, session_id: str, **fields: Any) -> None:
        """Remember more of a session. Raises OSError."""
        os.makedirs(os.path.join(self.folder, "sessions"), mode=0o700, exist_ok=True)
        path = self.session_record_path(session_id)
        aside = f"{path}.{os.getpid()}"
        session_record = {**self.load_session_record_or_empty(session_id), **fields}
        with open(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump(session_record, file)
        os.replace(aside, path)

    def session_record_path(self, session_id: str) -> str:
        # A client may have chosen the id, so it is no file's name.
        name = hashlib.sha256(session_id.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        return os.path.join(self.folder, "sessions", f"{name}.json")
