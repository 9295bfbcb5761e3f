"""Actions that write accounts, sign-ins and API keys."""
