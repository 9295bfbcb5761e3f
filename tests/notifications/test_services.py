"""Messages to services by Apprise: what leaves, what it may not reach, and that its addresses stay secrets."""

from __future__ import annotations

import json
import logging
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.utils import timezone

from coordinator.actions import notifications
from coordinator.actions.mcp import mcp_credentials
from coordinator.errors import Conflict, UnprocessableRequest
from coordinator.identity.actors import Actor
from coordinator.models import AuditLog, Notification, NotificationTarget
from coordinator.notifications import apprise_channel, apprise_services
from coordinator.notifications.apprise_child import AuditHookFence, FenceRefused
from coordinator.secrets import keyring
from tests.approvals.factories import NOW, asked
from tests.notifications.receivers import Receiver

pytestmark = pytest.mark.django_db

SECRET = "tk-very-secret-9f3b"
DISCORD = f"https://discord.com/api/webhooks/4174216298/{SECRET}"


def at_service(user: User, url: str, name: str = "") -> NotificationTarget:
    return notifications.create_notification_target(
        user=user, kind="apprise", address=url, name=name, now=NOW
    )


def of(receiver: Receiver, schema: str = "json", path: str = "hook") -> str:
    return f"{schema}://127.0.0.1:{receiver.server.server_port}/{path}"


def delivered() -> Notification:
    message = Notification.objects.get()
    notifications.deliver_notification(message.pk, NOW)
    message.refresh_from_db()
    return message


def test_a_waiting_request_reaches_a_service_with_a_link_and_without_its_input(
    receiver: Receiver, alice: User, settings: Any
) -> None:
    settings.PUBLIC_URL = "https://box.example"
    target = at_service(alice, of(receiver))
    row = asked(justification="Please @everyone <!channel> [look](https://evil.example)")
    message = delivered()
    [(_, body)] = receiver.came
    told = json.loads(body)
    assert (message.state, message.outcome) == ("sent", "answered 200")
    assert told["title"] == "Signalbox: mind.x asks for ProcessExecution"
    assert told["message"].endswith(f"https://box.example/ui/approvals/{row.request_id}/")
    assert "make deploy" not in body.decode()
    for active in ("@everyone", "<!channel>", "](https"):
        assert active not in told["message"]
    assert target.shown == "JSON at 127.0.0.1"


def test_a_server_of_ones_own_is_reached_where_an_operator_allows_it(receiver: Receiver, alice: User) -> None:
    at_service(alice, of(receiver, "ntfy", SECRET))
    asked()
    assert delivered().state == "sent"
    assert json.loads(receiver.came[0][1])["topic"] == SECRET


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_nothing_internal_is_reached_by_itself(
    receiver: Receiver, alice: User, settings: Any, host: str
) -> None:
    settings.WEBHOOK_NETWORKS = ["127.0.0.1", "::1"]
    at_service(alice, f"json://{host}:{receiver.server.server_port}/")
    settings.WEBHOOK_NETWORKS = []  # an operator took it back
    asked()
    assert "internal address" in str(delivered().outcome)
    assert receiver.came == []


@pytest.mark.parametrize(
    "url",
    [
        "json://10.0.0.1/",
        "jsons://127.0.0.1:8443/",
        "ntfy://169.254.169.254/latest",
        "gotify://localhost/token-of-mine",
        "xml://[::1]/",
        "form://[::ffff:192.168.0.1]/x",
        "mmost://box.localhost/key-of-mine",
    ],
)
def test_an_internal_address_is_refused_when_it_is_typed(alice: User, settings: Any, url: str) -> None:
    settings.WEBHOOK_NETWORKS = []
    with pytest.raises(UnprocessableRequest, match=r"internal address.*SIGNALBOX_WEBHOOK_NETWORKS"):
        at_service(alice, url)
    settings.WEBHOOK_NETWORKS = ["0.0.0.0/0", "::/0"]
    at_service(alice, url)


def test_a_redirect_is_not_followed_to_anywhere(receiver: Receiver, alice: User) -> None:
    receiver.status = 307
    at_service(alice, of(receiver))
    asked()
    assert delivered().outcome == "answered 307"
    assert len(receiver.came) == 1


def test_a_service_that_never_answers_is_left(
    receiver: Receiver, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_service(alice, of(receiver))
    asked()
    monkeypatch.setattr(apprise_channel, "DEADLINE", 3.0)
    monkeypatch.setattr(receiver, "wait", threading.Event())
    assert delivered().outcome == "did not answer in time"
    receiver.wait.set()


def test_what_a_message_does_not_need_is_fenced_off(tmp_path: Path) -> None:
    fence = AuditHookFence([], [sys.prefix])
    fence("open", (f"{sys.prefix}/lib/python/x.py", "rb", 0))
    (tmp_path / "venv").symlink_to(sys.prefix)
    AuditHookFence([], [str(tmp_path / "venv")])("open", (f"{tmp_path}/venv/lib/python/x.py", "rb", 0))
    fence("socket.connect", (None, ("93.184.215.14", 443)))
    for event, args in (
        ("open", ("/etc/passwd", "r", 0)),
        ("open", (f"{sys.prefix}/../../etc/passwd", "r", 0)),
        ("open", (f"{sys.prefix}/lib/python/x.py", "w", 1)),
        ("socket.connect", (None, "/run/docker.sock")),
        ("socket.connect", (None, ("169.254.169.254", 80))),
        ("socket.connect", (None, ("a.name.example", 80))),
        ("socket.sendto", (None, ("93.184.215.14", 53))),
        ("subprocess.Popen", ("sh", [], None, None)),
        ("os.system", ("id",)),
        ("os.posix_spawn", ("sh",)),
    ):
        with pytest.raises(FenceRefused):
            fence(event, args)


@pytest.mark.parametrize(
    "url",
    [
        f"mailto://me:{SECRET}@example.org",
        f"syslog://{SECRET}",
        f"dbus://{SECRET}",
        f"windows://{SECRET}",
        f"macosx://{SECRET}",
        f"file:///{SECRET}",
        f"vapid://{SECRET}@example.org?keyfile=/etc/passwd",
        f"rsyslog://{SECRET}.example",
        f"https://example.org/{SECRET}",  # no service's
        f"slack://{SECRET}",  # too short
        f"discord://4174216298/{SECRET}?template=/etc/passwd",
        f"json://example.org/{SECRET} and more",
        f"json://example.org/{SECRET * 200}",
        SECRET,
        "",
    ],
)
def test_what_is_no_address_of_a_listed_service_is_refused_without_repeating_it(
    alice: User, url: str
) -> None:
    with pytest.raises(UnprocessableRequest) as refusal:
        at_service(alice, url)
    assert SECRET not in str(refusal.value.detail)
    assert not NotificationTarget.objects.exists()


def test_the_address_is_nowhere_but_sealed(
    alice: User, signed_in: Any, caplog: pytest.LogCaptureFixture, receiver: Receiver
) -> None:
    caplog.set_level(logging.DEBUG)
    browser = signed_in("carol")
    page = "/ui/approvals/notifications/"
    receiver.status = 500
    url = f"json://user:{SECRET}@127.0.0.1:{receiver.server.server_port}/{SECRET}"
    answers = [browser.post(f"{page}add/", {"kind": "apprise", "address": url}, follow=True)]
    target = NotificationTarget.objects.get()
    asked()
    assert delivered().outcome == "answered 500"
    assert receiver.came
    answers += [browser.get(page), browser.get("/ui/audit/")]
    answers.append(
        browser.post(f"{page}add/", {"kind": "apprise", "address": f"{url}?template=/x"}, follow=True)
    )
    browser.post(f"{page}{target.pk}/remove/")
    for answer in answers:
        assert SECRET not in answer.content.decode()
    assert "JSON at 127.0.0.1" in answers[0].content.decode()
    tables = apps.get_app_config("coordinator").get_models()
    assert SECRET not in repr([list(one._default_manager.values()) for one in tables])
    assert SECRET not in caplog.text
    assert AuditLog.objects.filter(event_type="NOTIFICATION_TARGET_ADDED").exists()


def test_the_address_of_a_service_that_owns_its_host_shows_the_service_alone(alice: User) -> None:
    target = at_service(alice, DISCORD, "Team channel")
    assert (target.shown, target.name) == ("Discord", "Team channel")
    assert keyring.is_sealed_text(str(target.secret))
    assert apprise_channel.unseal_target_address(target) == DISCORD
    with pytest.raises(Conflict):
        at_service(alice, DISCORD)
    at_service(alice, f"{DISCORD}2")  # another channel of the same service


def test_a_sealed_address_opens_in_its_own_row_alone_and_survives_a_new_key(alice: User) -> None:
    target, other = at_service(alice, DISCORD), at_service(alice, f"{DISCORD}2")
    mcp_credentials.rotate_credential_key(actor=Actor("system", "cli"), now=timezone.now())
    target.refresh_from_db()
    assert apprise_channel.unseal_target_address(target) == DISCORD
    assert notifications.list_undecryptable_address_problems() == []
    NotificationTarget.objects.filter(pk=target.pk).update(
        secret=NotificationTarget.objects.get(pk=other.pk).secret
    )
    [problem] = notifications.list_undecryptable_address_problems()
    assert "Discord of alice" in problem


def test_every_listed_service_is_one_of_apprises_that_speaks_http() -> None:
    from apprise.manager_plugins import NotificationManager

    plugins: Any = NotificationManager()
    plugins.load_modules()
    unknown = [one for one in apprise_services.SCHEMAS if one not in plugins or not plugins[one].enabled]
    assert unknown == []
    for one in apprise_services.SCHEMAS:
        module = sys.modules[plugins[one].__module__]
        assert hasattr(module, "requests") or one in {"guilded", "jellyfin"}, one
