"""Events in: from programs, runners and telemetry, through one write queue."""
