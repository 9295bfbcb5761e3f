"""Chats with agents."""

from __future__ import annotations

from django.urls import path

from dashboard.chat import file_views as chat_files
from dashboard.chat import views as chat

app_name = "chat"
# An id may contain anything, also slashes, so the longer patterns come first.
urlpatterns = [
    path("", chat.list_chats, name="list"),
    path("open/", chat.redirect_to_chat_thread, name="open"),
    path("agents/", chat.list_chat_agents, name="agents"),
    path("search/", chat.search_chat_messages_view, name="search"),
    path("files/<text:attachment_id>/thumbnail/", chat_files.show_chat_thumbnail, name="thumbnail"),
    path("files/<text:attachment_id>/", chat_files.show_chat_attachment, name="attachment"),
    path("messages/<text:message_id>/delete/", chat.delete_chat_message_view, name="delete-message"),
    path("with/<text:agent_id>/say/", chat.send_chat_message, name="say"),
    path("with/<text:agent_id>/read/", chat.mark_chat_read, name="read"),
    path("with/<text:agent_id>/delivery/", chat.show_newest_message_delivery_view, name="delivery"),
    path("with/<text:agent_id>/presence/", chat.show_agent_presence, name="presence"),
    path("with/<text:agent_id>/clear/", chat.delete_chat_thread_view, name="clear"),
    path("with/<text:agent_id>/export.<str:form>", chat_files.export_chat_thread, name="export"),
    path("with/<text:agent_id>/", chat.show_chat_thread, name="thread"),
]
