"""Recorded ids and the ones our server gave in their place."""

from __future__ import annotations

import json
import re
from typing import Any

ID = re.compile(r"\b(?:ses|run|lnch)_[0-9a-f]{12}\b")


def is_id(value: Any) -> bool:
    """Say whether a value is an id of the shapes that coordinators make."""
    return isinstance(value, str) and ID.fullmatch(value) is not None


class Ids:
    """Learns which of our ids stands for which recorded one, and puts them in."""

    def __init__(self) -> None:
        self.ours: dict[str, str] = {}

    def learn(self, recorded: Any, ours: Any) -> None:
        """Walk two answers side by side and note the ids that stand at one place."""
        if isinstance(recorded, dict) and isinstance(ours, dict):
            for name in recorded.keys() & ours.keys():
                self.learn(recorded[name], ours[name])
        elif isinstance(recorded, list) and isinstance(ours, list):
            if len(recorded) == len(ours) == 1:
                self.learn(recorded[0], ours[0])
        elif is_id(recorded) and is_id(ours):
            self.ours.setdefault(recorded, ours)

    def put(self, value: Any) -> Any:
        """Return `value` with our ids in place of the recorded ones."""
        text = json.dumps(value)
        return json.loads(ID.sub(lambda found: self.ours.get(found[0], found[0]), text))
