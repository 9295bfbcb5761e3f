"""Chats with agents."""

from __future__ import annotations

from django.urls import path

from dashboard.views import chat, chat_files

app_name = "chat"
# Ids are anything that another program wrote, slashes too: what is longer comes first.
urlpatterns = [
    path("", chat.listing, name="list"),
    path("agents/", chat.agents, name="agents"),
    path("search/", chat.search, name="search"),
    path("files/<text:attachment_id>/thumbnail/", chat_files.thumbnail, name="thumbnail"),
    path("files/<text:attachment_id>/", chat_files.attachment, name="attachment"),
    path("messages/<text:message_id>/delete/", chat.delete_message, name="delete-message"),
    path("with/<text:agent_id>/say/", chat.say, name="say"),
    path("with/<text:agent_id>/read/", chat.read, name="read"),
    path("with/<text:agent_id>/presence/", chat.presence, name="presence"),
    path("with/<text:agent_id>/clear/", chat.clear, name="clear"),
    path("with/<text:agent_id>/export.<str:form>", chat_files.export, name="export"),
    path("with/<text:agent_id>/", chat.thread, name="thread"),
]
