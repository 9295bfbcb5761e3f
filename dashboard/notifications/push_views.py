"""Signalbox as a web app with push messages: its files, its devices, and decisions from a notification."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.models import User
from django.http import HttpResponse, JsonResponse
from django.middleware.csrf import get_token
from django.shortcuts import render
from django.utils import timezone

from coordinator.actions import approvals
from coordinator.actions.notifications import push
from coordinator.errors import SignalboxError, UnprocessableRequest
from coordinator.identity.declarations import (
    declare_anonymous_access,
    require_GET,
    require_POST,
    require_safe,
)
from coordinator.notifications.push import decidable_waiting_requests, serialize_requests_for_offline_page
from coordinator.policy.requests.questions import SubmittedAnswer
from dashboard.frame import devices, web_app_files
from dashboard.frame.guards import require_approver, require_sign_in
from dashboard.frame.htmx import HtmxHttpRequest

MOST_LISTED = 100


@require_safe
@declare_anonymous_access
def serve_service_worker(_request: HtmxHttpRequest) -> HttpResponse:
    """Return the service worker. It needs no sign-in, because a browser updates it at any time."""
    return HttpResponse(web_app_files.build_service_worker_source(), "text/javascript; charset=utf-8")


@require_safe
@declare_anonymous_access
def serve_web_app_manifest(_request: HtmxHttpRequest) -> HttpResponse:
    """Return the web app manifest. It needs no sign-in, because browsers request it without cookies."""
    return JsonResponse(web_app_files.build_web_app_manifest(), content_type="application/manifest+json")


@require_safe
@declare_anonymous_access
def show_offline_page(request: HtmxHttpRequest) -> HttpResponse:
    """Return the page that the service worker caches. It contains no personal data."""
    return render(request, "push/offline.html")


@require_GET
@require_approver
def waiting_requests_json_view(request: HtmxHttpRequest) -> HttpResponse:
    """Return as JSON what waits for this person, with the CSRF token.

    Denying from a notification needs this token in addition to the proof of the browser.
    """
    now = timezone.now()
    rows = decidable_waiting_requests(push_request_signed_in_user(request), now).order_by("-id")
    push_payload = {
        "at": now.isoformat(),
        "count": rows.count(),
        "requests": serialize_requests_for_offline_page(rows[:MOST_LISTED], now),
    }
    return JsonResponse(push_payload | {"csrf": get_token(request)})


@require_POST
@require_approver
def get_or_create_vapid_key_view(_request: HtmxHttpRequest) -> HttpResponse:
    """Return the public key to which a browser binds its subscription.

    The first request creates the key pair.
    """
    try:
        return JsonResponse({"key": push.ensure_vapid_public_key(now=timezone.now())})
    except SignalboxError as refusal:
        return build_push_refusal_response(refusal)


@require_POST
@require_approver
def save_push_subscription(request: HtmxHttpRequest) -> HttpResponse:
    """Store this browser's push subscription. Its session remembers the device."""
    form = request.POST
    replaces = form.get("replaces", "")
    try:
        target = push.subscribe_push_device(
            user=push_request_signed_in_user(request),
            address=form.get("endpoint", ""),
            p256dh=form.get("p256dh", ""),
            auth=form.get("auth", ""),
            device=form.get("device", ""),
            replaces=replaces,
            now=timezone.now(),
        )
    except SignalboxError as refusal:
        return build_push_refusal_response(refusal)
    devices.store_push_device_in_session(request, target)
    if not replaces:
        messages.success(request, "This device is notified. Send a test to check it.")
    return JsonResponse({"kept": True})


@require_POST
@require_sign_in
def renew_push_subscription_sign_in(request: HtmxHttpRequest) -> HttpResponse:
    """Bind this browser's subscription to the new sign-in, and return as JSON whether it is still valid.

    Every signed-in person may do this. The device ends if it belonged to another person, or if this person
    may not decide requests.
    """
    target = push.renew_push_device_sign_in(
        user=push_request_signed_in_user(request),
        address=request.POST.get("endpoint", ""),
        now=timezone.now(),
    )
    if target is not None:
        devices.store_push_device_in_session(request, target)
    return JsonResponse({"kept": target is not None})


@require_POST
@require_approver
def deny_request_from_notification(request: HtmxHttpRequest) -> HttpResponse:
    """Deny the request whose digest a notification showed. A notification cannot approve."""
    request_id, judged = request.POST.get("id", ""), request.POST.get("judged", "")
    try:
        if not request_id or not judged:
            raise UnprocessableRequest("The denial does not say what the notification showed.")
        approvals.decide_request(
            request_id, person=push_request_signed_in_user(request), verdict="denied", judged=judged
        )
    except SignalboxError as refusal:
        return build_push_refusal_response(refusal)
    return HttpResponse(status=204)


@require_POST
@require_approver
def answer_question_from_notification(request: HtmxHttpRequest) -> HttpResponse:
    """Answer the question whose digest a notification showed, with one of the choices that it offered."""
    request_id, judged = request.POST.get("id", ""), request.POST.get("judged", "")
    choice = request.POST.get("choice", "")
    try:
        if not request_id or not judged or not (choice.isascii() and choice.isdigit() and len(choice) < 4):
            raise UnprocessableRequest("The answer does not say what the notification showed.")
        answer = approvals.RequestAnswer([SubmittedAnswer((int(choice),))])
        approvals.answer_request(
            request_id, answer, person=push_request_signed_in_user(request), judged=judged
        )
    except SignalboxError as refusal:
        return build_push_refusal_response(refusal)
    return HttpResponse(status=204)


def build_push_refusal_response(refusal: SignalboxError) -> HttpResponse:
    return JsonResponse({"detail": str(refusal.detail)}, status=refusal.status)


def push_request_signed_in_user(request: HtmxHttpRequest) -> User:
    assert isinstance(request.user, User)
    return request.user
