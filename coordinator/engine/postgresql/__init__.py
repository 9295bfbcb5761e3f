"""Django's backend for PostgreSQL, riding out a fail-over (settings.DATABASES names it)."""
