"""The agents whose transcripts are understood, by name."""

from __future__ import annotations

from coordinator.dialects import (
    claude_transcripts,
    codex_transcripts,
    copilot_transcripts,
    gemini_transcripts,
    kilo_transcripts,
    opencode_transcripts,
    qwen_code_transcripts,
)

TRANSCRIPTS = {
    one.FORMAT.name: one.FORMAT
    for one in (
        claude_transcripts,
        codex_transcripts,
        gemini_transcripts,
        opencode_transcripts,
        copilot_transcripts,
        kilo_transcripts,
        qwen_code_transcripts,
    )
}
