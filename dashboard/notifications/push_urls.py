"""URLs of Signalbox as a web app. The path of the service worker sets its scope: all of /ui/."""

from __future__ import annotations

from django.urls import path

from dashboard.notifications import push_views as push

app_name = "push"

urlpatterns = [
    path("service-worker.js", push.serve_service_worker, name="worker"),
    path("manifest.webmanifest", push.serve_web_app_manifest, name="manifest"),
    path("push/offline/", push.show_offline_page, name="offline"),
    path("push/waiting/", push.waiting_requests_json_view, name="waiting"),
    path("push/key/", push.get_or_create_vapid_key_view, name="key"),
    path("push/subscribe/", push.save_push_subscription, name="subscribe"),
    path("push/renew/", push.renew_push_subscription_sign_in, name="renew"),
    path("push/deny/", push.deny_request_from_notification, name="deny"),
    path("push/answer/", push.answer_question_from_notification, name="answer"),
]
