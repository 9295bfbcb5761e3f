"""How foreign agents speak: what they send, in our words. Nothing here touches the database."""

from __future__ import annotations
