"""Actions that write the usage, cost and prices of requests to models."""
