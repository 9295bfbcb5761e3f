"""People and their roles. The three roles are groups; a person's role is set on their page."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.contrib.auth import update_session_auth_hash
from django.contrib.auth.forms import AdminPasswordChangeForm, BaseUserCreationForm
from django.contrib.auth.models import Group, User
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html, format_html_join

from coordinator.actions.people import accounts, membership, passkeys, provider_sign_ins, users
from coordinator.errors import SignalboxError
from coordinator.identity.actors import Actor, person_actor
from coordinator.identity.roles import ROLES
from dashboard.admin import columns
from dashboard.admin.filters import build_period_filter_class
from dashboard.admin.forms import StoredForm
from dashboard.admin.options import ActionAdmin, ViewOnlyAdmin, actor_from_request
from dashboard.people.forms import NO_ROLE, ROLE_CHOICES
from dashboard.templatetags.signalbox import NOTHING


class RoleField(forms.ChoiceField):
    def __init__(self) -> None:
        super().__init__(
            choices=[NO_ROLE, *ROLE_CHOICES], required=False, widget=forms.RadioSelect, label="Role"
        )


class PersonForm(StoredForm):
    role = RoleField()

    class Meta:
        model = User
        fields = ("username", "first_name", "last_name", "email", "is_active", "is_superuser")
        help_texts = {
            "is_active": (
                "If people leave, deactivate them instead of deleting them. API keys that they created keep working: "
                "revoke those on the page API keys."
            ),
            "is_superuser": "An admin, whatever the role says.",
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.initial["role"] = users.group_role_or_empty(self.instance)


class NewPersonForm(BaseUserCreationForm, StoredForm):  # type: ignore[type-arg]
    role = RoleField()

    class Meta:
        model = User
        fields = ("username",)


@admin.display(description="role")
def role_cell(row: User) -> str:
    names = {group.name for group in row.groups.all()}
    role = next((role for role in reversed(ROLES) if role in names), "none")
    return "admin (superuser)" if row.is_superuser else role


@admin.display(description="password")
def password_cell(row: User) -> Any:
    url = reverse("admin:auth_user_password_change", args=[row.pk])
    link_text = "Set a new password"
    if not row.has_usable_password():
        way = (
            "signs in with single sign-on"
            if provider_sign_ins.is_user_connected_to_provider(row)
            else "cannot sign in"
        )
        link_text = f"No password: {way}. Set a password"
    return format_html('<a href="{}">{}</a>', url, link_text)


@admin.display(description="passkeys")
def passkeys_cell(row: User) -> Any:
    """Return how many passkeys the person has, with a link to the page where they are removed."""
    count = len(passkeys.list_passkeys(row))
    url = f"{reverse('admin:coordinator_passkey_changelist')}?user_id={row.pk}"
    link_text = f"{count} passkey{'' if count == 1 else 's'}: see or remove"
    return format_html('<a href="{}">{}</a>', url, link_text) if count else "none"


SEEN = (columns.time_column("last_login"), columns.time_column("date_joined", label="joined"))

for _model in (User, Group):  # django.contrib.auth registers these itself, with pages that bypass the actions
    if admin.site.is_registered(_model):
        admin.site.unregister(_model)


@admin.register(User)
class PersonAdmin(ActionAdmin):
    form = PersonForm
    list_display = (
        columns.text_column("username", label="name"),
        role_cell,
        columns.flag_column("is_active", label="state"),
        columns.text_column("email"),
        columns.text_column("first_name"),
        columns.text_column("last_name"),
        *SEEN,
    )
    list_filter = ("is_active", "is_superuser", "groups", build_period_filter_class("last_login"))
    search_fields = ("username", "first_name", "last_name", "email")
    ordering = ("username",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).prefetch_related("groups")

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.set_password_view)
        return [path("<id>/password/", view, name="auth_user_password_change"), *super().get_urls()]

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest | None = None) -> bool:
        return not lookup.startswith("password") and super().lookup_allowed(lookup, value, request)

    def audit_log_target_of_row(self, object_id: str) -> str:
        user = User.objects.filter(pk=object_id).first() if object_id.isdecimal() else None
        return user.get_username() if user else object_id

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        form_options = {} if obj else {"form": NewPersonForm}
        return super().get_form(request, obj, change=change, **{**kwargs, **form_options})

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        if obj is None:
            return [(None, {"fields": ["username", "password1", "password2", "role", "version"]})]
        return [
            (
                None,
                {
                    "fields": [
                        "username",
                        password_cell,
                        passkeys_cell,
                        "first_name",
                        "last_name",
                        "email",
                        "version",
                    ]
                },
            ),
            ("Rights", {"fields": ["role", "is_active", "is_superuser"]}),
            ("Current state", {"fields": list(SEEN)}),
        ]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return [password_cell, passkeys_cell, *SEEN] if obj else []

    def compute_row_version(self, row: Any) -> str:
        return users.compute_user_version(row)

    def add_row(self, form: Any, actor: Actor) -> User:
        cleaned_data = form.cleaned_data
        return users.create_user(
            cleaned_data["username"],
            password=cleaned_data["password1"],
            role=cleaned_data["role"],
            actor=actor,
        )

    def change_row_from_admin_form(self, row: Any, form: Any, actor: Actor) -> None:
        changes = form.changed_form_values(users.EDITABLE)
        cleaned_data = form.cleaned_data
        by = User.objects.get(username=actor.name)  # first: the change may give them another name
        user = users.update_user(
            row.pk, changes, role=cleaned_data["role"], actor=actor, seen_version=cleaned_data["version"]
        )
        if changes.get("is_active") is False:
            membership.end_person_sessions_and_devices(user, by=by, now=timezone.now())

    def delete_row(self, row: Any, actor: Actor) -> None:
        users.delete_user(row.pk, actor=actor)

    def list_deletion_refusal_reasons(self, rows: list[Any], actor: Actor) -> list[str]:
        return [users.SELF_REFUSED] if any(person_actor(row) == actor for row in rows) else []

    def set_password_view(self, request: HttpRequest, id: str) -> Any:
        """Set a person's new password through the action.

        The admin's own session continues if it is theirs.
        """
        user = self.get_object(request, unquote(id))
        if user is None:
            raise Http404("There is no such person.")
        form = AdminPasswordChangeForm(user, request.POST or None)
        if (
            request.method == "POST"
            and form.is_valid()
            and self.change_password_or_add_form_error(request, user, form)
        ):
            return HttpResponseRedirect(reverse("admin:auth_user_change", args=[user.pk]))
        context = {
            **self.admin_site.each_context(request),
            "title": f"Change password: {user.get_username()}",
            "form": form,
            "original": user,
            "opts": self.opts,
        }
        return TemplateResponse(request, "admin/password.html", context)

    def change_password_or_add_form_error(self, request: HttpRequest, user: User, form: Any) -> bool:
        try:
            accounts.change_password(
                user, form.cleaned_data["password1"], actor=actor_from_request(request), now=timezone.now()
            )
        except SignalboxError as refusal:
            form.add_error(None, str(refusal.detail))
            return False
        if user == request.user:  # otherwise their own session would end
            update_session_auth_hash(request, user)
        messages.success(request, f"{user.get_username()} has a new password.")
        return True


@admin.display(description="members")
def group_member_names_cell(row: Group) -> Any:
    links = (
        (reverse("admin:auth_user_change", args=[user.pk]), user.get_username())
        for user in row.user_set.all()
    )
    return format_html_join(", ", '<a href="{}">{}</a>', links) or NOTHING


@admin.register(Group)
class GroupAdmin(ViewOnlyAdmin):
    """Groups, read-only: the roles, and the groups of deciders, which are edited on the page Who decides."""

    list_display = (columns.text_column("name"), group_member_names_cell)
    search_fields = ("name",)
    ordering = ("name",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).prefetch_related("user_set")

    def list_detail_page_columns(self) -> list[columns.Cell]:
        return [columns.text_column("name"), group_member_names_cell]
