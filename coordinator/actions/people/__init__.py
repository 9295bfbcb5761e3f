"""Writing about people and keys: accounts, sign-in, API keys."""
