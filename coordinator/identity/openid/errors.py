"""What goes wrong between us and a provider: words for the person, and for the log what it really was."""

from __future__ import annotations

from coordinator.errors import Forbidden, ServiceBusy


class ProviderUnreachable(ServiceBusy):
    """The provider does not answer, too slowly, or not with what it should. `problem` is for the log."""

    def __init__(self, problem: str) -> None:
        super().__init__(
            "The sign-in service does not answer as it should. Try again in a minute. If this "
            "persists, tell an administrator.",
            retry_after=10,
        )
        self.problem = problem


class SignInRefused(Forbidden):
    """What came from the provider, or by way of the browser, proves nothing. `problem` is for the log."""

    def __init__(self, problem: str, detail: str = "") -> None:
        super().__init__(
            detail
            or "The sign-in service's answer could not be verified, so you were not signed in. Try again."
        )
        self.problem = problem


class AuthorizationCodeRefused(SignInRefused):
    """The provider was asked about a code, and would not have it."""
