"""The two halves of a push: what only the device can read, and who sends it. Compared with RFC 8291 and libraries."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from py_vapid import Vapid02

from coordinator.notifications import webpush
from tests.push.service import Device

# RFC 8291, section 5 and appendix A.
TEXT = b"When I grow up, I want to be a watermelon"
SENDER = "yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw"
DEVICE = "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"
SECRET, SALT = "BTBZMqHH6r4Tts7J_aSIgg", "DGv6ra1nlYgDCS1FRnbzlw"
MESSAGE = (
    "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6"
    "PBru3jl7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"
)


def test_the_example_of_the_standard_comes_out_byte_for_byte() -> None:
    sender = ec.derive_private_key(int.from_bytes(webpush.decode_base64url(SENDER)), webpush.CURVE)
    made = webpush.encrypt_push_record(
        TEXT + b"\x02",
        webpush.decode_base64url(DEVICE),
        webpush.decode_base64url(SECRET),
        sender,
        webpush.decode_base64url(SALT),
    )
    assert webpush.encode_base64url(made) == MESSAGE


@pytest.mark.parametrize("length", [0, 1, webpush.STEP - 1, webpush.STEP, webpush.LONGEST])
def test_another_library_reads_what_we_encrypt_and_its_length_tells_little(length: int) -> None:
    device, text = Device(), b"x" * length
    made = webpush.encrypt_push_message(text, device.p256dh, device.auth)
    assert device.opened(made) == text
    assert len(made) <= webpush.RECORD
    assert (len(made) - 86 - 16) % webpush.STEP == 0


def test_what_is_too_long_for_a_push_service_is_refused() -> None:
    device = Device()
    with pytest.raises(ValueError, match="at most"):
        webpush.encrypt_push_message(b"x" * (webpush.LONGEST + 1), device.p256dh, device.auth)


def test_another_library_accepts_who_sends() -> None:
    key, now = webpush.generate_vapid_key(), datetime.now(UTC)
    header = webpush.vapid_authorization_header("https://push.example/to/x?y", key, "mailto:a@b.example", now)
    assert header.endswith(f"k={webpush.vapid_public_key(key)}")
    assert Vapid02.verify(header)
    forged = header.replace(
        webpush.vapid_public_key(key), webpush.vapid_public_key(webpush.generate_vapid_key())
    )
    assert not Vapid02.verify(forged)


POINT = webpush.decode_base64url(DEVICE)
WRONG_POINTS = {
    "nothing": b"",
    "too short": POINT[:64],
    "too long": POINT + b"\0",
    "compressed": bytes([2 + POINT[-1] % 2]) + POINT[1:33],
    "hybrid": bytes([6 + POINT[-1] % 2]) + POINT[1:],
    "of another form": b"\x05" + POINT[1:],
    "not on the curve": POINT[:-1] + bytes([POINT[-1] ^ 1]),
    "beyond the field": b"\x04" + b"\xff" * 64,
    "infinity": bytes(65),
    "zero": b"\x04" + bytes(64),
}


@pytest.mark.parametrize("which", WRONG_POINTS)
def test_only_an_uncompressed_point_of_the_curve_is_a_devices_key(which: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        webpush.validate_device_keys(webpush.encode_base64url(WRONG_POINTS[which]), SECRET)


@pytest.mark.parametrize(
    ("p256dh", "auth"),
    [
        ("", ""),
        ("ä", SECRET),
        (DEVICE, "*"),
        (DEVICE, ""),
        *((DEVICE, webpush.encode_base64url(bytes(length))) for length in (15, 17, 32)),
    ],
)
def test_what_are_no_keys_of_a_device_is_refused(p256dh: str, auth: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        webpush.validate_device_keys(p256dh, auth)
    webpush.validate_device_keys(DEVICE, SECRET)
