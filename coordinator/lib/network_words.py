"""Network errors in words for people, never in the other machine's own words."""

from __future__ import annotations

import http.client
import smtplib
import socket
import ssl
import urllib.error


def describe_network_error(problem: BaseException) -> str:
    """Return a short phrase, such as "refused the connection"; what has none is named by its type."""
    if isinstance(problem, urllib.error.URLError) and isinstance(problem.reason, BaseException):
        return describe_network_error(problem.reason)
    for kinds, sentence in _WORDS:
        if isinstance(problem, kinds):
            return sentence
    return f"failed ({type(problem).__name__})"


# The first that fits counts: the later ones are more general.
_WORDS: tuple[tuple[tuple[type[BaseException], ...], str], ...] = (
    ((socket.gaierror, UnicodeError), "has no known address"),
    ((TimeoutError,), "did not answer in time"),
    ((ConnectionRefusedError,), "refused the connection"),
    ((ssl.SSLCertVerificationError,), "showed a certificate that is not valid"),
    ((ssl.SSLError,), "did not speak TLS as expected"),
    ((ConnectionError, http.client.RemoteDisconnected), "closed the connection"),
    ((http.client.HTTPException,), "did not answer as a web server does"),
    ((smtplib.SMTPAuthenticationError,), "did not accept the user name and password"),
    ((smtplib.SMTPRecipientsRefused,), "refused the recipient"),
    ((smtplib.SMTPSenderRefused,), "refused the sender"),
    ((smtplib.SMTPServerDisconnected,), "closed the connection"),
)
