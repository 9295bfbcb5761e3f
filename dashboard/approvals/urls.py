"""Permission requests: the inbox, the verdict, the history."""

from __future__ import annotations

from django.urls import path

from dashboard.approvals.views import always_allow as always
from dashboard.approvals.views import history as approval_history
from dashboard.approvals.views import inbox as approvals
from dashboard.approvals.views import one_by_one
from dashboard.approvals.views import questions as question_views
from dashboard.approvals.views import sets as approval_sets
from dashboard.notifications import escalation_views as escalation
from dashboard.notifications import views as notifications

app_name = "approvals"

urlpatterns = [
    path("", approvals.show_inbox_and_save_arrangement, name="inbox"),
    path("decide/", approvals.decide_card_requests, name="decide"),
    path("answer/", question_views.answer_card_requests, name="answer"),
    path("set/", approval_sets.ask_to_confirm_chosen_requests, name="confirm-set"),
    path("set/decide/", approval_sets.decide_chosen_requests, name="decide-set"),
    path("triage/", approval_sets.assign_or_snooze_chosen_requests, name="triage"),
    path("seen/", approvals.record_requests_seen_view, name="seen"),
    path("one-by-one/", one_by_one.show_next_waiting_request, name="one-by-one"),
    path("history/", approval_history.list_approval_history, name="history"),
    path("history.csv", approval_history.export_approval_history, name="export"),
    path("statistics/", approval_history.show_approval_statistics, name="statistics"),
    path("notifications/", notifications.show_notification_settings, name="notifications"),
    path("notifications/add/", notifications.add_notification_address_view, name="notification-add"),
    path(
        "notifications/<int:target_id>/remove/",
        notifications.delete_notification_address_view,
        name="notification-remove",
    ),
    path(
        "notifications/<int:target_id>/test/",
        notifications.send_test_notification_view,
        name="notification-test",
    ),
    path("notifications/<int:target_id>/about/", notifications.set_address_topics, name="notification-about"),
    path(
        "notifications/unguarded/",
        notifications.save_unguarded_call_notifications,
        name="notification-unguarded",
    ),
    path("notifications/quiet/", notifications.save_or_clear_quiet_hours, name="quiet-hours"),
    path("notifications/escalation/", escalation.show_escalation_steps, name="escalation"),
    path("notifications/escalation/add/", escalation.add_escalation_step_view, name="escalation-add"),
    path(
        "notifications/escalation/<int:step_id>/remove/",
        escalation.delete_escalation_step_view,
        name="escalation-remove",
    ),
    path("<text:request_id>/always/", always.show_or_accept_always_allow, name="always"),
    path("<text:request_id>/revoke/", approvals.revoke_approval_view, name="revoke"),
    path("<text:request_id>/", approvals.show_permission_request, name="detail"),
]
