"""Django's backend for SQLite, reading what any program may have stored (settings.DATABASES names it)."""
