"""Chats with agents."""

from __future__ import annotations

from django.urls import path

from dashboard.views import chat, chat_files

app_name = "chat"
# Agents' ids are anything that another program wrote, slashes too: they come last.
urlpatterns = [
    path("", chat.listing, name="list"),
    path("agents/", chat.agents, name="agents"),
    path("search/", chat.search, name="search"),
    path("files/<str:attachment_id>/", chat_files.attachment, name="attachment"),
    path("files/<str:attachment_id>/thumbnail/", chat_files.thumbnail, name="thumbnail"),
    path("messages/<str:message_id>/delete/", chat.delete_message, name="delete-message"),
    path("with/<path:agent_id>/say/", chat.say, name="say"),
    path("with/<path:agent_id>/read/", chat.read, name="read"),
    path("with/<path:agent_id>/presence/", chat.presence, name="presence"),
    path("with/<path:agent_id>/clear/", chat.clear, name="clear"),
    path("with/<path:agent_id>/export.<str:form>", chat_files.export, name="export"),
    path("with/<path:agent_id>/", chat.thread, name="thread"),
]
