"""Signalbox as an app on a device. The worker's path is its reach: all of /ui/."""

from __future__ import annotations

from django.urls import path

from dashboard.views import push

app_name = "push"

urlpatterns = [
    path("service-worker.js", push.worker, name="worker"),
    path("manifest.webmanifest", push.manifest, name="manifest"),
    path("push/offline/", push.offline, name="offline"),
    path("push/waiting/", push.waiting, name="waiting"),
    path("push/key/", push.key, name="key"),
    path("push/subscribe/", push.subscribe, name="subscribe"),
    path("push/renew/", push.renew, name="renew"),
    path("push/deny/", push.deny, name="deny"),
]
