"""The documents show the pictures that the repository makes, and no others."""

from __future__ import annotations

import re

from tests.screenshots import FOLDER, ROOT, SCHEMES, SHOTS


def test_every_picture_in_the_documents_is_made_by_the_command_and_is_there() -> None:
    shown = set(re.findall(r'(?:src|srcset)="([^"]+)"', (ROOT / "README.md").read_text()))
    for path in (ROOT / ".docs").glob("*.md"):
        for light in re.findall(r"!\[[^\]]*\]\((\S+)\)", path.read_text()):
            shown |= {f".docs/{light}", f".docs/{light.replace('-light', '-dark')}"}
    made = {str(shot.file(scheme).relative_to(ROOT)) for shot in SHOTS for scheme in SCHEMES}
    assert shown == made
    assert {str(path.relative_to(ROOT)) for path in FOLDER.iterdir()} == made
