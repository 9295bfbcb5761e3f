"""Translations between agents' formats and Signalbox's. Nothing here touches the database.

What a new agent needs is listed in `coordinator/sessions/agent_programs.py`.
"""

from __future__ import annotations
