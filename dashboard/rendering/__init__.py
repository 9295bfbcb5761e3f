"""Draws foreign text in a sandbox: Markdown, colours, diffs. No page waits for it longer than its allowance.

`jobs` is what the child process does and knows nothing of Django; `answers` asks it and keeps what it answers;
`allowance` is how long a page may wait for all of it together. Where there is no answer in time, text is plain.
"""

# Characters. What is longer is shown plain, or of Markdown only the beginning.
from __future__ import annotations

COLOUR_UP_TO = 30_000  # nobody reads further in a timeline
MARKDOWN_UP_TO = 200_000
