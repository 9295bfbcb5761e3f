"""Text stands out from what it stands on, in light and in dark (WCAG 2.2: 4.5 to 1; edges of controls 3 to 1)."""

from __future__ import annotations

import math
import re

import pytest
from django.conf import settings

CSS = (settings.BASE_DIR / "static" / "css" / "tokens.css").read_text()
SCHEMES = ("light", "dark")
COLOUR = r"(?:oklch\([^)]*\)|#[0-9a-f]+)"
TOKENS = {
    name: (light, dark)
    for name, light, dark in re.findall(rf"--([\w-]+): light-dark\(({COLOUR}), ({COLOUR})\);", CSS)
}
GROUNDS = ("canvas", "surface", "raised", "head")
STATES = ("good", "warn", "bad", "calm")
TEXT = [
    *((ink, ground) for ink in ("ink", "ink-2", "ink-3", "accent") for ground in GROUNDS),
    *((state, f"{state}-soft") for state in STATES),
    *((state, ground) for state in STATES for ground in ("surface", "canvas")),
    ("accent", "accent-soft"),
    ("ink", "accent-soft"),
    ("ink", "mark"),
    ("ink", "added"),
    ("ink", "removed"),
]
FILLS = ("accent-fill", "accent-fill-hover", "bad-fill", "bad-fill-hover", "good-fill")


def luminance(colour: str) -> float:
    """Return the relative luminance of `#fff` or `oklch(L% C H)` (Björn Ottosson's matrices, clipped to sRGB)."""
    if colour.startswith("#"):
        return 1.0 if colour in {"#fff", "#ffffff"} else pytest.fail(f"unknown colour {colour}")
    lightness, chroma, hue = (float(part.rstrip("%")) for part in colour[6:-1].split())
    a, b = chroma * math.cos(math.radians(hue)), chroma * math.sin(math.radians(hue))
    lightness /= 100
    long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
    medium = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
    red = 4.0767416621 * long - 3.3077115913 * medium + 0.2309699292 * short
    green = -1.2684380046 * long + 2.6097574011 * medium - 0.3413193965 * short
    blue = -0.0041960863 * long - 0.7034186147 * medium + 1.7076147010 * short
    clipped = (min(max(value, 0.0), 1.0) for value in (red, green, blue))
    return sum(weight * value for weight, value in zip((0.2126, 0.7152, 0.0722), clipped, strict=True))


def contrast(one: str, other: str) -> float:
    brighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (brighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(("ink", "ground"), TEXT)
def test_text_can_be_read(ink: str, ground: str, scheme: str) -> None:
    which = SCHEMES.index(scheme)
    assert contrast(TOKENS[ink][which], TOKENS[ground][which]) >= 4.5


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("fill", FILLS)
def test_white_can_be_read_on_filled_buttons(fill: str, scheme: str) -> None:
    assert contrast("#fff", TOKENS[fill][SCHEMES.index(scheme)]) >= 4.5


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("edge", ["line-strong", "focus"])
def test_edges_of_controls_can_be_seen(edge: str, scheme: str) -> None:
    which = SCHEMES.index(scheme)
    assert all(contrast(TOKENS[edge][which], TOKENS[ground][which]) >= 3 for ground in GROUNDS)


def test_the_measure_agrees_with_known_values() -> None:
    assert contrast("#fff", "oklch(0% 0 0)") == pytest.approx(21, abs=0.01)
    assert contrast("#fff", "oklch(59.99% 0 0)") == pytest.approx(3.95, abs=0.05)  # #808080
