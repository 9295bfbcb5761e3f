"""The doctor says whether the provider answers; settings that cannot work say what to do."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from coordinator.operations.doctor import CheckLevel, sign_in
from coordinator.settings import env_openid_group_roles, env_openid_provider_url
from tests.openid.provider import Provider

pytestmark = pytest.mark.one_engine


def found() -> list[CheckLevel]:
    return [check.level for check in sign_in.iterate_single_sign_on_checks()]


def test_the_doctor_looks(provider: Provider, settings: Any) -> None:
    settings.HTTPS = True
    assert found() == [CheckLevel.OK]
    provider.about["code_challenge_methods_supported"] = ["plain"]
    assert found() == [CheckLevel.OK]  # kept


@pytest.mark.parametrize(
    ("about", "level"),
    [
        ({"issuer": "https://evil.example"}, CheckLevel.FAIL),
        ({"id_token_signing_alg_values_supported": ["HS256", "none"]}, CheckLevel.FAIL),
        ({"code_challenge_methods_supported": ["plain"]}, CheckLevel.WARN),
    ],
)
def test_the_doctor_finds(
    provider: Provider, settings: Any, about: dict[str, Any], level: CheckLevel
) -> None:
    settings.HTTPS = True
    provider.about = about
    assert level in found()


def test_without_a_provider_there_is_nothing_to_say() -> None:
    assert found() == []


@pytest.mark.parametrize("issuer", ["http://login.example.com", "login", "https://login.example.com?a=b"])
def test_an_issuer_that_is_none(monkeypatch: pytest.MonkeyPatch, issuer: str) -> None:
    monkeypatch.setenv("SIGNALBOX_OIDC_ISSUER", issuer)
    with pytest.raises(Exception, match="must be an https:// address"):
        env_openid_provider_url("SIGNALBOX_OIDC_ISSUER")


def test_roles_of_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIGNALBOX_OIDC_ROLES", " /a=b = viewer, ops=admin")
    assert env_openid_group_roles("SIGNALBOX_OIDC_ROLES") == {"/a=b": "viewer", "ops": "admin"}
    monkeypatch.setenv("SIGNALBOX_OIDC_ROLES", "ops=root")
    with pytest.raises(Exception, match="must hold group=role pairs"):
        env_openid_group_roles("SIGNALBOX_OIDC_ROLES")


def test_passwords_are_not_switched_off_without_another_way() -> None:
    program = "import os; os.environ['SIGNALBOX_PASSWORD_SIGN_IN'] = 'off'; import coordinator.settings"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "needs SIGNALBOX_OIDC_ISSUER" in done.stderr
