"""What no browser sends to the doors of devices and notifications: NUL, halves of characters, endless words.

No form with NUL comes as far as a view.
"""

from __future__ import annotations

from urllib.parse import urlencode

import pytest
from django.urls import reverse

from tests.people import signed_in
from tests.push.service import Device

pytestmark = pytest.mark.django_db
ADDRESS = "https://push.example.org/to/a-device"
WHOLE = {
    "push:subscribe": {"endpoint": ADDRESS, **Device().keys, "device": "Phone", "replaces": "https://x"},
    "push:renew": {"endpoint": ADDRESS},
    "push:deny": {"id": "a", "judged": "b"},
    "approvals:notification-add": {"kind": "email", "address": "a@example.org", "name": "Me"},
    "approvals:quiet-hours": {"begins": "22:00", "ends": "07:00", "time_zone": "UTC"},
    "approvals:escalation-add": {"after_minutes": "5", "whom": "person:admin"},
}
FIELDS = [(door, name) for door, form in WHOLE.items() for name in form]
WRONG = {"NUL": b"\0", "half a character": b"\xed\xa0\x80", "endless words": b"9" * 10_000}


@pytest.mark.parametrize(("door", "name"), FIELDS)
@pytest.mark.parametrize("wrong", WRONG)
def test_what_no_browser_sends_is_taken_or_refused_in_words(
    tmp_path, settings, door: str, name: str, wrong: str
) -> None:
    settings.DATA_DIR = tmp_path
    form = {one: value.encode() for one, value in WHOLE[door].items()}
    form[name] += WRONG[wrong]
    browser, kind = signed_in("admin"), "application/x-www-form-urlencoded"
    answer = browser.post(reverse(door), urlencode(form), content_type=kind)  # raises where it would be a 500
    if wrong == "NUL":
        assert answer.status_code == 400
    elif door.startswith("push:"):
        assert answer.status_code in {200, 404, 409, 422}, answer.content
        assert {"detail", "kept"} & set(answer.json())
    else:
        assert answer.status_code == 302


@pytest.mark.parametrize(
    "door", ["notification-remove", "notification-test", "notification-about", "escalation-remove"]
)
def test_a_number_that_no_database_holds_is_no_row(door: str) -> None:
    browser = signed_in("admin")
    answer = browser.post(
        f"{reverse(f'approvals:{door}', args=[9**30])}", {"about": "everything"}, follow=True
    )
    assert answer.status_code == 200
