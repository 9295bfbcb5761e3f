"""Render untrusted text in a sandbox: Markdown, syntax colours, diffs.

`jobs` runs in the child process and does not import Django. `rendering_cache` submits jobs and caches their
answers. `allowance` limits how long one page waits for all its jobs together. A text without an answer in
time is shown plain.
"""

from __future__ import annotations

# Characters. Longer code is shown plain, and only the beginning of a longer Markdown text is rendered.
COLOUR_UP_TO = 30_000  # nobody reads further in a timeline
MARKDOWN_UP_TO = 200_000
