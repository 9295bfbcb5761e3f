"""Sign-in, the account and API keys."""
