"""Translations between agents' formats and Signalbox's. Nothing here touches the database."""

from __future__ import annotations
