"""Ingestion of events from programs, runners and telemetry, through one write queue."""
