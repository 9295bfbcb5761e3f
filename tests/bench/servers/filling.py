"""`python -m tests.bench.servers.filling`: puts files into the chat of a SQLite installation; prints what they are.

The data folder is that of the environment. One JSON object: messages, each with the SHA-256 of its file.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import random

import django

FILES = 20
SIZES = (70_000, 300_000, 1_500_000)  # bytes; all are too large for the database


def main() -> None:
    """Post the messages as an admin would."""
    from django.contrib.auth.models import User

    from coordinator.actions.chat import chat
    from coordinator.models import Agent

    agent = Agent.objects.filter(enabled=True).order_by("id").first()
    assert agent is not None
    speaker, digests = chat.build_person_speaker(User.objects.get(username="admin")), {}
    for number in range(FILES):
        data = random.randbytes(SIZES[number % len(SIZES)])
        upload = chat.ChatUpload(io.BytesIO(data), f"{number}.bin", "application/octet-stream")
        posted = chat.submit_chat_message(
            agent.id, [{"type": "text", "text": "A file"}], speaker=speaker, files=[upload]
        )
        digests[posted.id] = hashlib.sha256(data).hexdigest()
    print(json.dumps(digests))


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "coordinator.settings")
    django.setup()
    main()
