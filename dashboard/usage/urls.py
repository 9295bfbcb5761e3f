"""URLs of the pages about tokens, costs and prices."""

from __future__ import annotations

from django.urls import path

from dashboard.usage import views as costs

app_name = "costs"

urlpatterns = [
    path("", costs.show_usage_and_prices, name="show"),
    path("tools/", costs.show_tool_usage, name="tools"),
    path("activity/", costs.show_activity_fragment, name="activity"),
    path("csv/", costs.export_usage_csv, name="csv"),
    path("json/", costs.export_usage_json, name="json"),
    path("prices/", costs.save_model_prices_view, name="save-prices"),
]
