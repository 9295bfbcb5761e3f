"""Permission requests: the inbox, the verdict, the history."""

from __future__ import annotations

from django.urls import path

from dashboard.views import (
    always,
    approval_history,
    approval_sets,
    approvals,
    escalation,
    notifications,
)

app_name = "approvals"

urlpatterns = [
    path("", approvals.inbox_page, name="inbox"),
    path("decide/", approvals.decide, name="decide"),
    path("set/", approval_sets.confirm, name="confirm-set"),
    path("set/decide/", approval_sets.decide, name="decide-set"),
    path("triage/", approval_sets.triage, name="triage"),
    path("seen/", approvals.seen, name="seen"),
    path("history/", approval_history.history, name="history"),
    path("history.csv", approval_history.export, name="export"),
    path("statistics/", approval_history.statistics, name="statistics"),
    path("notifications/", notifications.page, name="notifications"),
    path("notifications/add/", notifications.add, name="notification-add"),
    path("notifications/<int:target_id>/remove/", notifications.remove, name="notification-remove"),
    path("notifications/<int:target_id>/test/", notifications.test, name="notification-test"),
    path("notifications/<int:target_id>/about/", notifications.about, name="notification-about"),
    path("notifications/quiet/", notifications.quiet, name="quiet-hours"),
    path("notifications/escalation/", escalation.page, name="escalation"),
    path("notifications/escalation/add/", escalation.add, name="escalation-add"),
    path("notifications/escalation/<int:step_id>/remove/", escalation.remove, name="escalation-remove"),
    path("<text:request_id>/always/", always.page, name="always"),
    path("<text:request_id>/revoke/", approvals.revoke, name="revoke"),
    path("<text:request_id>/", approvals.detail, name="detail"),
]
