"""URLs of people and their invitations, for admins, and of the page that an invitation's link opens."""

from __future__ import annotations

from django.urls import path

from dashboard.people import joining_views as joining
from dashboard.people import views as people

app_name = "people"
urlpatterns = [
    path("", people.list_people, name="list"),
    path("invite/", people.invite_person, name="invite"),
    path("invitations/<int:invitation_id>/revoke/", people.revoke_invitation_view, name="revoke"),
    path("join/", joining.join_by_invitation, name="join"),
    path("join/passkey/options/", joining.passkey_options_for_invitation_view, name="join-passkey-options"),
    path("join/passkey/", joining.join_with_passkey, name="join-passkey"),
    path("<int:user_id>/", people.show_person, name="detail"),
    path("<int:user_id>/role/", people.change_role_view, name="role"),
    path("<int:user_id>/sign-out/", people.sign_out_person_view, name="sign-out"),
    path("<int:user_id>/deactivate/", people.deactivate_person_view, name="deactivate"),
    path("<int:user_id>/reactivate/", people.reactivate_person_view, name="reactivate"),
]
