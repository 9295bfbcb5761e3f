"""Sign-in at MCP servers: an administrator configures it, people go to the server's page and back.

Coming back is a URL that anybody may open. It only shows a form, which submits itself with the browser's
secret (static/js/provider.js), as for single sign-on. So nobody can be signed in by another person's link.
"""

from __future__ import annotations

import hmac
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from django.contrib import messages
from django.contrib.auth.models import User
from django.contrib.sessions.backends.base import SessionBase
from django.http import HttpResponse, JsonResponse
from django.shortcuts import redirect, render, resolve_url
from django.utils import timezone
from django.utils.crypto import get_random_string
from django.views.decorators.cache import never_cache

from coordinator.actions.mcp import mcp_authorizations, mcp_sign_ins
from coordinator.actions.mcp.mcp_authorizations import AuthorizationSettings
from coordinator.errors import SignalboxError, UnprocessableRequest
from coordinator.identity.actors import person_actor
from coordinator.identity.declarations import (
    declare_anonymous_access,
    require_http_methods,
    require_POST,
    require_safe,
)
from coordinator.identity.roles import ADMIN, has_role
from coordinator.identity.session_store import SessionStore
from coordinator.mcp.protocol import oauth
from coordinator.models import McpAuthorization
from dashboard.frame import form_refusals as refusals
from dashboard.frame.form_page_redirects import declare_page_of_form_view
from dashboard.frame.guards import require_admin, require_viewer_role
from dashboard.frame.htmx import HtmxHttpRequest
from dashboard.mcp.sign_in_parts import build_oauth_redirect_uri, oauth_client_metadata_url

SIGN_INS_SESSION_KEY = "mcp_sign_ins"  # session key: the sign-ins in progress, oldest first
MOST_TABS = 3  # tabs of one browser that can sign in at the same time
GOOD_FOR = 600  # seconds
GONE = (
    "This sign-in was started in another browser, was already used, or took more than ten minutes. Start again on the "
    "server's page."
)
NOBODY = "off"


@dataclass(frozen=True, slots=True)
class PendingSignIn:
    """A sign-in in progress, as the person's session stores it."""

    server: str
    state: str
    verifier: str
    issuer: str
    begun_at: int  # epoch seconds


@require_POST
@declare_page_of_form_view("mcp:server")
@require_admin
def save_server_sign_in_settings(request: HtmxHttpRequest, name: str) -> HttpResponse:
    """Enable sign-in at a server with its settings, or disable it and delete all sign-ins there."""
    form, now = request.POST, timezone.now()
    mode, actor = form.get("mode", ""), person_actor(request.user)
    with refusals.add_refusal_message_during_block(request):
        if mode == NOBODY:
            mcp_authorizations.remove_server_authorization(name, actor=actor, now=now)
            messages.success(request, "No sign-in is needed any more. All sign-ins were forgotten.")
        else:
            authorization_settings = AuthorizationSettings(
                mode,
                " ".join(form.get("scopes", "").split()),
                form.get("client_id", "").strip(),
                form.get("client_secret", "").strip(),
                must_register="must_register" in form,
            )
            mcp_authorizations.register_and_save_server_authorization(
                name,
                authorization_settings,
                redirect_uri=build_oauth_redirect_uri(),
                document_url=oauth_client_metadata_url(),
                actor=actor,
                now=now,
            )
            messages.success(
                request, "Saved. The authorization server was found, and Signalbox is its client."
            )
    return redirect("mcp:server", name)


@require_POST
@declare_page_of_form_view("mcp:server")
@never_cache
@require_viewer_role
def start_server_sign_in(request: HtmxHttpRequest, name: str) -> HttpResponse:
    """Show a page that leads to the server's sign-in page.

    The content security policy forbids forms to lead to another site, so this is not a redirect.
    """
    assert isinstance(request.user, User)
    now, state, verifier = timezone.now(), get_random_string(43), oauth.create_code_verifier()
    try:
        authorization = McpAuthorization.objects.filter(pk=name).first()
        if authorization is None:
            raise UnprocessableRequest(f"Nobody signs in at the server {name}.")
        mcp_sign_ins.require_server_sign_in_right(authorization, is_admin=has_role(request.user, ADMIN))
        address = mcp_sign_ins.build_sign_in_address(
            name, request.user, redirect_uri=build_oauth_redirect_uri(), state=state, verifier=verifier
        )
    except (SignalboxError, oauth.AuthorizationFailed) as problem:
        messages.error(request, str(getattr(problem, "detail", problem)))
        return redirect("mcp:server", name)
    pending = PendingSignIn(name, state, verifier, address.issuer, int(now.timestamp()))
    request.session[SIGN_INS_SESSION_KEY] = [
        *pending_sign_ins_of_session(request.session, now),
        asdict(pending),
    ][-MOST_TABS:]
    return render(request, "accounts/provider_leave.html", {"address": address.address, "provider": name})


@require_http_methods(["GET", "POST"])
@never_cache
@require_viewer_role
def confirm_or_finish_server_authorization(request: HtmxHttpRequest) -> HttpResponse:
    """Show the form for the server's answer (GET), which has no effect yet, or process that form (POST)."""
    if request.method != "POST":
        sent = {name: request.GET[name] for name in ("code", "state", "iss", "error") if name in request.GET}
        return render(
            request,
            "accounts/provider_back.html",
            {"sent": sent, "provider": "the sign-in", "action": request.path},
        )
    assert isinstance(request.user, User)
    assert isinstance(request.session, SessionStore)
    now = timezone.now()
    with request.session.lock_and_save_during_block():  # consumed: the same answer sent again is refused
        pending = pop_pending_sign_in(request.session, request.POST.get("state", ""), now)
    if pending is None:
        messages.error(request, GONE)
        return redirect("mcp:list")
    if error := request.POST.get("error"):
        messages.error(request, f"{pending.server} did not sign you in: {error[:200]}.")
        return redirect("mcp:server", pending.server)
    with refusals.add_refusal_message_during_block(request):
        authorization = McpAuthorization.objects.filter(pk=pending.server).first()
        if authorization is None:
            raise UnprocessableRequest(f"Nobody signs in at the server {pending.server} any more.")
        mcp_sign_ins.require_server_sign_in_right(authorization, is_admin=has_role(request.user, ADMIN))
        mcp_sign_ins.complete_server_sign_in(
            pending.server,
            request.user,
            code=request.POST.get("code", ""),
            issuer=request.POST.get("iss", ""),
            expected_issuer=pending.issuer,
            verifier=pending.verifier,
            redirect_uri=build_oauth_redirect_uri(),
            now=now,
        )
        messages.success(request, f"You are signed in at {pending.server}.")
    return redirect(f"{resolve_url('mcp:server', pending.server)}#sign-in")


@require_POST
@declare_page_of_form_view("mcp:server")
@require_viewer_role
def sign_out_of_mcp_server_view(request: HtmxHttpRequest, name: str) -> HttpResponse:
    """Delete a sign-in at a server: the person's own or, for administrators, anybody's."""
    assert isinstance(request.user, User)
    token = request.POST.get("token", "")
    with refusals.add_refusal_message_during_block(request):
        problem = mcp_sign_ins.sign_out_and_return_revocation_problem(
            int(token) if token.isascii() and token.isdigit() and len(token) < 19 else 0,
            request.user,
            is_admin=has_role(request.user, ADMIN),
            now=timezone.now(),
        )
        if problem:
            messages.warning(request, f"Signed out here. {problem}")
        else:
            messages.success(request, "Signed out.")
    return redirect("mcp:server", name)


@require_POST
@declare_page_of_form_view("mcp:server")
@require_admin
def choose_sign_in_person_of_agent(request: HtmxHttpRequest, name: str) -> HttpResponse:
    """Set the person whose sign-in an agent uses at servers."""
    person = request.POST.get("person", "")
    with refusals.add_refusal_message_during_block(request):
        mcp_authorizations.set_agent_sign_in_user(
            request.POST.get("agent", ""),
            int(person) if person.isascii() and person.isdigit() and len(person) < 19 else None,
            actor=person_actor(request.user),
            now=timezone.now(),
        )
        messages.success(request, "Saved.")
    return redirect("mcp:server", name)


@require_safe
@declare_anonymous_access
def show_oauth_client_metadata(request: HtmxHttpRequest) -> HttpResponse:  # noqa: ARG001 - the shape Django calls
    """Return Signalbox's OAuth client id metadata document, which authorization servers fetch."""
    document = oauth.build_client_registration_body(
        build_oauth_redirect_uri(),
        mcp_authorizations.CLIENT_NAME,
        "none",
        ("authorization_code", "refresh_token"),
    )
    return JsonResponse({"client_id": oauth_client_metadata_url(), **document})


def pending_sign_ins_of_session(session: SessionBase, now: datetime) -> list[dict[str, Any]]:
    stored = session.get(SIGN_INS_SESSION_KEY)
    since = now.timestamp() - GOOD_FOR
    return [pending for pending in stored if pending["begun_at"] > since] if isinstance(stored, list) else []


def pop_pending_sign_in(session: SessionBase, state: str, now: datetime) -> PendingSignIn | None:
    """Remove the sign-in with this state from the session and return it; None if there is none."""
    sign_ins = pending_sign_ins_of_session(session, now)
    matching = [
        pending
        for pending in sign_ins
        if state and hmac.compare_digest(pending["state"].encode(), state.encode())
    ]
    session[SIGN_INS_SESSION_KEY] = [pending for pending in sign_ins if pending not in matching]
    return PendingSignIn(**matching[0]) if matching else None
