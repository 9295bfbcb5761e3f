"""Tokens and costs: the chart, the table, the prices."""
