"""Every setting of Signalbox: an environment variable with a safe default, listed in .docs/settings.md.

Nothing here touches the database. A value that cannot be used raises `ImproperlyConfigured` with one
sentence that says what to do; `manage.py` prints that sentence and exits 1.
"""

from __future__ import annotations

import hmac
import ipaddress
import logging
import os
import re
import secrets
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import dj_database_url
from django.core.exceptions import ImproperlyConfigured

from coordinator.lib import chosen_database, installation, listening_sockets, private_files
from coordinator.lib.listening_sockets import is_loopback

BASE_DIR = installation.FILES
HELP_FOLDER = BASE_DIR / ".docs"  # the Markdown files of dashboard/help/pages.py


def env_str(name: str, default: str) -> str:
    """Return the variable's text, or `default` where it is unset or empty."""
    return os.environ.get(name, "").strip() or default


def env_bool(name: str, default: bool) -> bool:
    """Return a switch: on/true/yes/1 or off/false/no/0, in any case."""
    text = env_str(name, "on" if default else "off").lower()
    if text in {"on", "true", "yes", "1"}:
        return True
    if text in {"off", "false", "no", "0"}:
        return False
    raise ImproperlyConfigured(f"{name} must be on or off, not {text!r}.")


def env_int(name: str, default: int, *, least: int = 0) -> int:
    """Return a whole number of at least `least`."""
    text = env_str(name, str(default))
    try:
        number = int(text)
    except ValueError:
        raise ImproperlyConfigured(f"{name} must be a whole number, not {text!r}.") from None
    if number < least:
        raise ImproperlyConfigured(f"{name} must be at least {least}, not {number}.")
    return number


def env_seconds(name: str, default: float) -> float:
    """Return a length of time in seconds, more than nothing; fractions are allowed."""
    text = env_str(name, str(default))
    try:
        seconds = float(text)
    except ValueError:
        raise ImproperlyConfigured(f"{name} must be a number of seconds, not {text!r}.") from None
    if not 0 < seconds < 10_000_000:
        raise ImproperlyConfigured(f"{name} must be more than 0 seconds, not {text!r}.")
    return seconds


def env_time_zone(name: str, default: str) -> ZoneInfo:
    """Return a time zone by its name, such as Europe/Berlin."""
    text = env_str(name, default)
    try:
        return ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ImproperlyConfigured(
            f"{name} must be a time zone such as Europe/Berlin, not {text!r}."
        ) from None


def env_list(name: str) -> list[str]:
    """Return the comma-separated parts, without blanks and empty parts."""
    return [part.strip() for part in env_str(name, "").split(",") if part.strip()]


def env_headers(name: str) -> dict[str, str]:
    """Return headers by name, which are written `name=value, …`. A value is a secret, so no message shows it."""
    pairs = [part.partition("=") for part in env_list(name)]
    if not all(header.strip() and sign for header, sign, _ in pairs):
        raise ImproperlyConfigured(f"{name} must hold name=value pairs, separated by commas.")
    return {header.strip(): value.strip() for header, _, value in pairs}


def env_network_texts(name: str) -> list[str]:
    """Return the comma-separated addresses and networks; host names would have to be looked up, and can lie."""
    for part in env_list(name):
        try:
            ipaddress.ip_network(part, strict=False)
        except ValueError:
            raise ImproperlyConfigured(
                f"{name} must hold addresses or networks, for example 10.0.0.0/8, not {part!r}."
            ) from None
    return env_list(name)


def split_url_setting(name: str, text: str) -> SplitResult:
    """Return the parts of an address that the variable holds, which has a port that can be one, or none."""
    try:
        parts = urlsplit(text)
        parts.port  # noqa: B018 - looked at for its error
    except ValueError as problem:
        raise ImproperlyConfigured(f"{name} is no address that can be used: {problem}.") from None
    return parts


def env_openid_provider_url(name: str) -> str:
    """Return an OpenID provider's address, as it is written in its tokens; plain http only on this machine."""
    text = env_str(name, "")
    parts = split_url_setting(name, text)
    is_local = is_loopback(parts.hostname or "")
    safe = parts.scheme == "https" or (parts.scheme == "http" and is_local)
    if text and (not safe or parts.query):
        raise ImproperlyConfigured(f"{name} must be an https:// address without a query, not {text!r}.")
    return text


def env_openid_group_roles(name: str) -> dict[str, str]:
    """Return which role each group of an OpenID provider gives: `ops=approver, boss=admin`."""
    pairs = [
        (group.strip(), role.strip())
        for group, _, role in (entry.rpartition("=") for entry in env_list(name))
    ]
    for group, role in pairs:
        if not group or role not in {"viewer", "approver", "admin"}:
            raise ImproperlyConfigured(
                f"{name} must hold group=role pairs with the roles viewer, approver and admin, not {group}={role}."
            )
    return dict(pairs)


def split_bind_host_and_port(bind: str) -> tuple[str, int]:
    """Split `host:port` (IPv6 hosts in brackets) into its two parts."""
    try:
        return listening_sockets.split_bind_address(bind)
    except ValueError as problem:
        raise ImproperlyConfigured(str(problem)) from None


def load_or_make_secret_key(folder: Path) -> str:
    """Return the key kept in `folder`, made on first use and readable by its owner alone."""
    path = folder / "secret_key"
    try:
        if not os.path.lexists(path):
            create_missing_secret_key_file(path)
        private_files.make_file_private(path)
        return path.read_text().strip()
    except (OSError, private_files.PathNotPrivate) as problem:
        raise build_data_folder_error(folder, problem) from None


def create_missing_secret_key_file(path: Path) -> None:
    """Make the file, whole at once; where another process was faster, its file stays."""
    temporary_path = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    with os.fdopen(os.open(temporary_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(secrets.token_urlsafe(64))
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(temporary_path, path)
    except FileExistsError:
        pass
    finally:
        temporary_path.unlink()


def make_data_folder_private(folder: Path) -> None:
    """Have the data folder, and what lies in it, for this user alone; mend what is ours, refuse what is not."""
    try:
        private_files.ensure_private_folder(folder)
        for name in ("attachments", "thumbnails"):
            private_files.make_tree_private(folder / name)
    except (OSError, private_files.PathNotPrivate) as problem:
        raise build_data_folder_error(folder, problem) from None


def make_database_private(path: Path) -> None:
    """Have SQLite's file, and those that it keeps beside, for this user alone; where it may lie elsewhere, too."""
    try:
        if path.parent.exists():
            private_files.close_parent_folder_to_others(path)
        for suffix in ("", "-wal", "-shm", "-journal", ".migrating", ".people-wait"):
            private_files.make_file_private(path.with_name(path.name + suffix))
    except (OSError, private_files.PathNotPrivate) as problem:
        raise ImproperlyConfigured(
            f"The database {path} is not safe. {describe_file_os_error(problem)} DATABASE_URL says where it is."
        ) from None


def build_data_folder_error(folder: Path, problem: Exception) -> ImproperlyConfigured:
    return ImproperlyConfigured(
        f"The data folder {folder} cannot be used: {describe_file_os_error(problem)} Fix that, or name another folder "
        "in SIGNALBOX_DATA_DIR."
    )


def describe_file_os_error(problem: Exception) -> str:
    return f"{problem.strerror}." if isinstance(problem, OSError) else str(problem)


def s3_storage_settings(bucket: str) -> dict[str, Any]:
    """Return Django's settings for the storage in a bucket of S3."""
    if not (find_spec("storages") and find_spec("boto3")):
        raise ImproperlyConfigured(
            "SIGNALBOX_S3_BUCKET needs django-storages with boto3: pip install 'signalbox[s3]'."
        )
    endpoint = env_str("SIGNALBOX_S3_ENDPOINT", "")
    if endpoint and split_url_setting("SIGNALBOX_S3_ENDPOINT", endpoint).scheme not in {"http", "https"}:
        raise ImproperlyConfigured(
            f"SIGNALBOX_S3_ENDPOINT must be an http(s) address such as https://s3.example, not {endpoint!r}."
        )
    options = {
        "bucket_name": bucket,
        "location": env_str("SIGNALBOX_S3_PREFIX", "signalbox").strip("/"),
        "endpoint_url": endpoint or None,
        "region_name": env_str("SIGNALBOX_S3_REGION", "us-east-1"),
    }
    return {"BACKEND": "coordinator.chat.stores.s3.Bucket", "OPTIONS": options}


def derive_loopback_host_name(key: str) -> str:
    """Return this install's host name for people's pages on loopback: always the same for the same key."""
    return f"signalbox-{hmac.digest(key.encode(), b'signalbox.own-host', 'sha256').hex()[:10]}.localhost"


# Whatever this process makes is for its user alone: the database, its log, attachments, static files.
os.umask(0o077)
DATA_DIR = (
    Path(env_str("SIGNALBOX_DATA_DIR", str(installation.default_data_folder()))).expanduser().absolute()
)
make_data_folder_private(DATA_DIR)
BIND_HOST, BIND_PORT = split_bind_host_and_port(env_str("SIGNALBOX_BIND", listening_sockets.USUAL))
BIND = listening_sockets.join_host_port(BIND_HOST, BIND_PORT)
SECRET_KEY = os.environ.get("SIGNALBOX_SECRET_KEY", "").strip() or load_or_make_secret_key(DATA_DIR)
# Cookies ignore ports: under 127.0.0.1 every program that serves a page on this machine is sent them. So people's
# pages have a host name of their own there, which browsers find by themselves; machines stay at the bare address.
OWN_HOST = (
    derive_loopback_host_name(SECRET_KEY)
    if is_loopback(BIND_HOST) and not env_str("SIGNALBOX_PUBLIC_URL", "")
    else ""
)
PUBLIC_URL = env_str(
    "SIGNALBOX_PUBLIC_URL", f"http://{OWN_HOST}:{BIND_PORT}" if OWN_HOST else f"http://{BIND}"
).rstrip("/")
TRUSTED_PROXIES = env_network_texts("SIGNALBOX_TRUSTED_PROXIES")

_public = split_url_setting("SIGNALBOX_PUBLIC_URL", PUBLIC_URL)
if (
    _public.scheme not in {"http", "https"}
    or not _public.hostname
    or _public.path
    or _public.query
    or _public.fragment
):
    raise ImproperlyConfigured(
        f"SIGNALBOX_PUBLIC_URL must be http(s)://host without a path, not {PUBLIC_URL!r}."
    )
# The same as it is given to agents. Browsers find names under `.localhost` by themselves, Node and getent do not.
AGENT_URL = PUBLIC_URL
if OWN_HOST or _public.hostname.rstrip(".").endswith(".localhost"):
    _loopback = BIND_HOST if OWN_HOST and BIND_HOST != "localhost" else "127.0.0.1"
    _at = listening_sockets.join_host_port(_loopback, _public.port) if _public.port else _loopback
    AGENT_URL = f"{_public.scheme}://{_at}"
HTTPS = _public.scheme == "https"

DEBUG = env_bool("SIGNALBOX_DEBUG", False)

# Who asks at the address that it is bound to is answered too: balancers, the doctor.
_every_address = {"0.0.0.0", "::"}  # noqa: S104 # compared, not bound to
_bound = [BIND.rpartition(":")[0]] if BIND_HOST not in _every_address else []
ALLOWED_HOSTS = list(
    dict.fromkeys(
        [_public.hostname, "127.0.0.1", "localhost", "[::1]", *_bound, *env_list("SIGNALBOX_ALLOWED_HOSTS")]
    )
)
CSRF_TRUSTED_ORIGINS = [f"{_public.scheme}://{_public.netloc}"]

# An API key is asked for on every machine endpoint. Off is for a laptop: loopback only, no foreign Host, no Origin.
API_AUTH = env_bool("SIGNALBOX_API_AUTH", True)
if not API_AUTH and not is_loopback(BIND_HOST):
    raise ImproperlyConfigured(
        f"SIGNALBOX_API_AUTH=off is refused on {BIND_HOST}: without keys anyone who reaches that address could "
        "start agents. Bind to 127.0.0.1, or leave API_AUTH on and make a key."
    )

SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = HTTPS
SESSION_COOKIE_HTTPONLY = True
# Over TLS a browser takes a cookie of this prefix only from this very host: no sister domain can plant one.
_host_only = "__Host-" if HTTPS else ""
SESSION_COOKIE_NAME = f"{_host_only}signalbox_session"
CSRF_COOKIE_NAME = f"{_host_only}signalbox_csrf"
DEVICE_COOKIE_NAME = "signalbox_device"  # a browser that somebody has signed in with (actions/accounts.py)
PROVIDER_DEVICE_COOKIE_NAME = "signalbox_provider_device"  # … by single sign-on
SESSION_COOKIE_AGE = 14 * 24 * 3600
SESSION_ENGINE = "coordinator.identity.session_store"
# Until the password is asked for again.
SIGN_IN_GOOD_FOR = env_seconds("SIGNALBOX_SIGN_IN_GOOD_FOR", 12 * 3600)
# Within how many seconds a person must have confirmed who they are to decide anything; 0: no confirmation is needed.
CONFIRM_DECISIONS_WITHIN = env_int("SIGNALBOX_CONFIRM_DECISIONS_WITHIN", 0)
# Single sign-on with OpenID Connect (coordinator/identity/openid). Without an issuer there is none.
OIDC_ISSUER = env_openid_provider_url("SIGNALBOX_OIDC_ISSUER")
OIDC_NAME = env_str("SIGNALBOX_OIDC_NAME", urlsplit(OIDC_ISSUER).hostname or "")
OIDC_CLIENT_ID = env_str("SIGNALBOX_OIDC_CLIENT_ID", "")
OIDC_CLIENT_SECRET = env_str("SIGNALBOX_OIDC_CLIENT_SECRET", "")
OIDC_SCOPES = env_str("SIGNALBOX_OIDC_SCOPES", "openid profile email").split()
OIDC_GROUPS_CLAIM = env_str("SIGNALBOX_OIDC_GROUPS_CLAIM", "groups")
OIDC_NAME_CLAIM = env_str("SIGNALBOX_OIDC_NAME_CLAIM", "preferred_username")
OIDC_ROLES = env_openid_group_roles("SIGNALBOX_OIDC_ROLES")
PASSWORD_SIGN_IN = env_bool("SIGNALBOX_PASSWORD_SIGN_IN", True)
if OIDC_ISSUER and not (OIDC_CLIENT_ID and OIDC_ROLES and "openid" in OIDC_SCOPES):
    raise ImproperlyConfigured(
        "SIGNALBOX_OIDC_ISSUER also needs SIGNALBOX_OIDC_CLIENT_ID, SIGNALBOX_OIDC_ROLES (group=role, …) and the "
        "scope openid."
    )
if OIDC_ISSUER and find_spec("authlib") is None:
    raise ImproperlyConfigured(
        "SIGNALBOX_OIDC_ISSUER needs a library that is not installed: pip install 'signalbox[oidc]'."
    )
if not PASSWORD_SIGN_IN and not OIDC_ISSUER:
    raise ImproperlyConfigured(
        "SIGNALBOX_PASSWORD_SIGN_IN=off needs SIGNALBOX_OIDC_ISSUER: nobody could sign in otherwise."
    )
# In the session, not in a cookie: a cookie's words are as safe as SECRET_KEY, and shown as the HTML they say they are.
MESSAGE_STORAGE = "django.contrib.messages.storage.session.SessionStorage"
SECURE_HSTS_SECONDS = 365 * 24 * 3600 if HTTPS else 0
SECURE_SSL_REDIRECT = HTTPS
# A probe on the machine itself speaks plain HTTP to the port behind the proxy.
SECURE_REDIRECT_EXEMPT = [r"^health"]
# The edge drops this header from every peer that is not in TRUSTED_PROXIES, so it can be believed here.
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if HTTPS and TRUSTED_PROXIES else None
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
# What no page of ours asks a browser for, so that nothing that gets into one can.
PERMISSIONS_POLICY = "camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=()"
# Named as Django 6 names it, so that the upgrade deletes coordinator.middleware.ContentSecurityPolicy.
SECURE_CSP: dict[str, list[str]] = {
    "default-src": ["'self'"],
    "img-src": ["'self'", "data:", "blob:"],
    "object-src": ["'none'"],
    "worker-src": ["'self'"],
    "manifest-src": ["'self'"],
    "base-uri": ["'none'"],
    "form-action": ["'self'"],
    "frame-ancestors": ["'none'"],
}
# Whether sub-domains of the host want TLS too, or a place in browsers' preload lists, is not ours to say.
SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W021"]
if not HTTPS:
    # No TLS ends here (loopback, or a proxy the operator has not told us of): nothing these ask for can be on.
    SILENCED_SYSTEM_CHECKS += ["security.W004", "security.W008", "security.W012", "security.W016"]

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in ("UserAttributeSimilarityValidator", "MinimumLengthValidator", "CommonPasswordValidator")
]
PASSWORD_HASHERS = [
    "django.contrib.auth.hashers.Argon2PasswordHasher",
    "django.contrib.auth.hashers.PBKDF2PasswordHasher",
]
LOGIN_URL = "accounts:login"
LOGIN_REDIRECT_URL = "overview"
LOGOUT_REDIRECT_URL = "accounts:login"
CSRF_FAILURE_VIEW = "dashboard.frame.error_views.csrf_failure"

INSTALLED_APPS = [
    "coordinator.apps.CoordinatorConfig",
    "dashboard.apps.DashboardConfig",
    "dashboard.apps.AdminSiteConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.humanize",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "django_filters",
    "django_htmx",
    "django_tables2",
    "ninja",
]

MIDDLEWARE = [
    "coordinator.middleware.TraceId",
    "coordinator.middleware.LivePosition",
    "coordinator.middleware.CompressPages",
    "django.middleware.security.SecurityMiddleware",
    "coordinator.middleware.ContentSecurityPolicy",
    "coordinator.middleware.RefuseNul",
    "coordinator.middleware.OwnHost",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "coordinator.middleware.NoStore",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "coordinator.middleware.RefuseNulInForms",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "dashboard.frame.browser_proof_middleware.RequireProof",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "coordinator.middleware.MachineMethods",
    "dashboard.frame.form_page_redirects.RedirectToFormPage",
    "dashboard.rendering.allowance.PageAllowance",
]
# How long one page may wait for all its Markdown, colours and diffs to be drawn; what is late is shown plain.
RENDERING_SECONDS = 0.3

ROOT_URLCONF = "coordinator.urls"
APPEND_SLASH = True
PAGES = ("/ui/", "/admin/")  # where the paths of people's pages begin; the others are for machines
MIB = 1024 * 1024
# The largest file of a chat message; all files of one message together, for they come in one request.
ATTACHMENT_MAX_BYTES = env_int("SIGNALBOX_ATTACHMENT_MAX_MIB", 25, least=1) * MIB
DATA_UPLOAD_MAX_MEMORY_SIZE = max(26 * MIB, ATTACHMENT_MAX_BYTES + MIB)

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "OPTIONS": {
            "loaders": [
                (
                    "django.template.loaders.cached.Loader",
                    [
                        "dashboard.frame.lean_templates.Loader",
                        "django.template.loaders.app_directories.Loader",
                    ],
                )
            ],
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "dashboard.frame.context.rail",
            ],
            "builtins": ["dashboard.templatetags.names"],
        },
    },
]

DJANGO_TABLES2_TEMPLATE = "components/table.html"

SQLITE_SYNCHRONOUS = env_str("SIGNALBOX_SQLITE_SYNCHRONOUS", "NORMAL").upper()
if SQLITE_SYNCHRONOUS not in {"NORMAL", "FULL", "EXTRA"}:
    raise ImproperlyConfigured("SIGNALBOX_SQLITE_SYNCHRONOUS must be NORMAL, FULL or EXTRA.")


def secure_sqlite_file_and_build_settings(path: Path | str) -> dict[str, Any]:
    """Return Django's settings for one SQLite file, set up for many readers and short writers."""
    make_database_private(Path(path).absolute())
    return {
        "ENGINE": "coordinator.engine.sqlite",
        "NAME": str(path),
        # Threads are few and live as long as their worker (edge/bridge.py), so their connections may too.
        "CONN_MAX_AGE": None,
        "OPTIONS": {
            "timeout": 3,
            "transaction_mode": "IMMEDIATE",
            "init_command": (
                f"PRAGMA journal_mode=WAL; PRAGMA synchronous={SQLITE_SYNCHRONOUS}; "
                "PRAGMA temp_store=MEMORY; PRAGMA cache_size=-8000; "
                # Pages: 32 MB of log, which whoever commits then copies: one of 600 events waits 30 ms for that. After
                # 1,000 pages, as SQLite has it, one of 70 would wait.
                "PRAGMA wal_autocheckpoint=8000"
            ),
        },
    }


def extract_ports_from_database_url(url: str) -> tuple[str, dict[str, str]]:
    """Take the ports out of a URL in which several hosts name their own (`@db1:5432,db2:5433/name`).

    Returns the URL without them, and Django's PORT, as PostgreSQL's client wants several. One port at the end stays: it
    is that of all hosts.
    """
    parts = urlsplit(url)
    people, at, hosts = parts.netloc.rpartition("@")
    each = [re.fullmatch(r"(.*?)(?::(\d+))?", host) for host in hosts.split(",")]
    named_hosts = [(host[1], host[2]) for host in each if host is not None]
    if not any(port for _, port in named_hosts[:-1]):
        return url, {}
    alone = parts._replace(netloc=people + at + ",".join(host for host, _ in named_hosts))
    return alone.geturl(), {"PORT": ",".join(port or "5432" for _, port in named_hosts)}


def secure_and_build_database_settings(url: str) -> dict[str, Any]:
    """Return Django's settings for `DATABASE_URL`: `postgres://…`, `sqlite:///path`, or nothing at all."""
    if not url:
        return secure_sqlite_file_and_build_settings(DATA_DIR / "signalbox.sqlite3")
    try:
        without_ports, ports = extract_ports_from_database_url(url)
        parsed: dict[str, Any] = dict(dj_database_url.parse(without_ports)) | ports
    except ValueError as problem:
        raise ImproperlyConfigured(f"DATABASE_URL cannot be read: {problem}") from None
    if parsed["ENGINE"] == "django.db.backends.sqlite3":
        return secure_sqlite_file_and_build_settings(parsed["NAME"] or DATA_DIR / "signalbox.sqlite3")
    if parsed["ENGINE"] != "django.db.backends.postgresql":
        raise ImproperlyConfigured("DATABASE_URL must start with postgres:// or sqlite:///.")
    return parsed | {
        "ENGINE": "coordinator.engine.postgresql",
        "CONN_MAX_AGE": None,
        "CONN_HEALTH_CHECKS": True,
        "OPTIONS": {
            "connect_timeout": 5,
            # A server that vanished without a word is noticed within 15 seconds, not after the system's two hours.
            "keepalives_idle": 5,
            "keepalives_interval": 2,
            "keepalives_count": 5,
            "tcp_user_timeout": 15_000,
            # A stuck statement would hold one of a worker's few threads. Ours are short: compiling one takes longer.
            # A page costs the same wherever it lies, as in memory and on SSDs. Else the check of a foreign key that was
            # planned when there were sixty events reads all events, and keeps that plan while they become many.
            "options": "-c lock_timeout=3000 -c idle_in_transaction_session_timeout=60000 -c jit=off"
            " -c random_page_cost=1.1",
            **parsed.get("OPTIONS", {}),
        },
    }


def pooler_database_settings(url: str) -> dict[str, Any]:
    """Return Django's settings for the same database through a pooler in transaction mode (engine/pooling.py)."""
    through = secure_and_build_database_settings(url)
    if (
        through["ENGINE"] != "coordinator.engine.postgresql"
        or DATABASES["default"]["ENGINE"] != through["ENGINE"]
    ):
        raise ImproperlyConfigured(
            "SIGNALBOX_POOL_URL is for PostgreSQL behind a pooler, and DATABASE_URL must lead to the same PostgreSQL "
            "itself."
        )
    # pgbouncer refuses `options`, and a cursor of the server's would be gone with its transaction.
    del through["OPTIONS"]["options"]
    return through | {"DISABLE_SERVER_SIDE_CURSORS": True}


def find_database_url() -> str:
    """Return the URL that the environment names, else `database.url` in the data folder; nothing for SQLite."""
    try:
        return os.environ.get("DATABASE_URL", "").strip() or chosen_database.secure_and_read_database_url(
            DATA_DIR
        )
    except (OSError, private_files.PathNotPrivate) as problem:
        raise build_data_folder_error(DATA_DIR, problem) from None


DATABASES = {"default": secure_and_build_database_settings(find_database_url())}
_pool_url = env_str("SIGNALBOX_POOL_URL", "")
POOL = pooler_database_settings(_pool_url) if _pool_url else None
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

LANGUAGE_CODE = "en"
USE_I18N = False
TIME_ZONE = "UTC"
USE_TZ = True
# Days begin at midnight here, where something is counted by the day. Times are stored in UTC all the same.
LOCAL_ZONE = env_time_zone("SIGNALBOX_TIME_ZONE", "UTC")

STATIC_URL = "static/"
STATIC_ROOT = DATA_DIR / "static"
STATICFILES_DIRS = [BASE_DIR / "static"]
STORAGES: dict[str, dict[str, Any]] = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "coordinator.operations.static_files.StaticFiles"},
    "folder": {"BACKEND": "coordinator.chat.stores.folder.Folder"},
}
# Where new attached files go, and the bucket (coordinator/chat/stores). Credentials are boto3's own affair.
ATTACHMENTS = env_str("SIGNALBOX_ATTACHMENTS", "folder").lower()
if ATTACHMENTS not in {"folder", "s3"}:
    raise ImproperlyConfigured(f"SIGNALBOX_ATTACHMENTS must be folder or s3, not {ATTACHMENTS!r}.")
S3_BUCKET = env_str("SIGNALBOX_S3_BUCKET", "")
if ATTACHMENTS == "s3" and not S3_BUCKET:
    raise ImproperlyConfigured("SIGNALBOX_ATTACHMENTS is s3: name the bucket in SIGNALBOX_S3_BUCKET.")
if S3_BUCKET:
    STORAGES["s3"] = s3_storage_settings(S3_BUCKET)

WORKERS = env_int("SIGNALBOX_WORKERS", 0)  # 0: chosen from the machine
THREADS = env_int("SIGNALBOX_THREADS", 2, least=1)
MAX_STREAMS = env_int("SIGNALBOX_MAX_STREAMS", 4000, least=1)  # open at a time per worker
MAX_POLLS = env_int("SIGNALBOX_MAX_POLLS", 4000, least=2)  # held at a time per worker
STREAMS_PER_CLIENT = env_int("SIGNALBOX_STREAMS_PER_CLIENT", 2000, least=1)  # … by one key or person
GRACEFUL_TIMEOUT = 2  # seconds; a runner gives up after three polls that failed within 3 s
HOOK_ANSWER_AFTER = 0.25  # seconds after which a hook is answered although what it tells is not written yet

# Secrets in what agents report are masked before they are stored (coordinator/secrets).
MASK_SECRETS = env_bool("SIGNALBOX_MASK_SECRETS", True)

RUNNER_POLL_TIMEOUT = env_seconds("SIGNALBOX_RUNNER_POLL_TIMEOUT", 30)
RUNNER_HEARTBEAT_INTERVAL = env_seconds("SIGNALBOX_RUNNER_HEARTBEAT_INTERVAL", 60)
RUN_NO_MATCH_TIMEOUT = env_seconds("SIGNALBOX_RUN_NO_MATCH_TIMEOUT", 300)
LIFECYCLE_INTERVAL = env_seconds("SIGNALBOX_LIFECYCLE_INTERVAL", 30)
RUNNER_STALE_AFTER = env_seconds("SIGNALBOX_RUNNER_STALE_AFTER", 120)
RUNNER_REMOVE_AFTER = env_seconds("SIGNALBOX_RUNNER_REMOVE_AFTER", 600)
SESSION_IDLE_AFTER = env_seconds("SIGNALBOX_SESSION_IDLE_AFTER", 900)
SESSION_SILENT_AFTER = env_seconds("SIGNALBOX_SESSION_SILENT_AFTER", 12 * 3600)

# Permission types that need two different people, and whether people may decide what their own keys asked for.
TWO_PERSON_TYPES = env_list("SIGNALBOX_TWO_PERSON_TYPES")
DECIDE_OWN_REQUESTS = env_bool("SIGNALBOX_DECIDE_OWN_REQUESTS", True)
# Permission types that are approved without a person, as "YOLO" in the record. Empty unless an operator says so.
AUTO_APPROVE_TYPES = env_list("SIGNALBOX_AUTO_APPROVE_TYPES")
# How many requests of one key may wait for people at a time; more are refused, so that others are seen too.
MAX_PENDING_REQUESTS = env_int("SIGNALBOX_MAX_PENDING_REQUESTS", 100)
# For how long a call that was denied because nobody answered in time can still be approved, and for how long after
# that the same call may run, once.
HELD_FOR = env_seconds("SIGNALBOX_HELD_FOR", 24 * 3600)
# What an admin may have started to ask an MCP server for its tools; `none` switches that off.
_may_start = env_str("SIGNALBOX_DISCOVERY_COMMANDS", "npx,node,python,python3,uvx,deno,bun")
MCP_IDLE = env_seconds("SIGNALBOX_MCP_IDLE", 600)  # after which a stdio server that nobody uses is stopped
MCP_LAUNCHER = env_str("SIGNALBOX_MCP_LAUNCHER", "")  # where the second user's launcher listens, a folder
DISCOVERY_COMMANDS = [name.strip() for name in _may_start.split(",") if name.strip() not in {"", "none"}]
# A tool that changed after it was granted may not be what was granted; on keeps it shut until somebody looked.
DENY_CHANGED_TOOLS = env_bool("SIGNALBOX_DENY_CHANGED_TOOLS", False)
if _both := sorted(set(TWO_PERSON_TYPES) & set(AUTO_APPROVE_TYPES)):
    raise ImproperlyConfigured(
        f"{', '.join(_both)} cannot need two people and nobody. Remove it from "
        "SIGNALBOX_AUTO_APPROVE_TYPES or from SIGNALBOX_TWO_PERSON_TYPES."
    )

KEY_BYTES_PER_DAY = env_int("SIGNALBOX_KEY_MIB_PER_DAY", 2048) * MIB  # of events, by one key; 0: no limit

# Days for which things are kept; 0: for ever. actions/pruning.py takes the rest away.
KEEP_SESSIONS_DAYS = env_int("SIGNALBOX_KEEP_SESSIONS_DAYS", 0)
KEEP_EVENT_BODIES_DAYS = env_int("SIGNALBOX_KEEP_EVENT_BODIES_DAYS", 0)
KEEP_REQUESTS_DAYS = env_int("SIGNALBOX_KEEP_REQUESTS_DAYS", 0)
KEEP_CHAT_DAYS = env_int("SIGNALBOX_KEEP_CHAT_DAYS", 0)
KEEP_NOTIFICATIONS_DAYS = env_int("SIGNALBOX_KEEP_NOTIFICATIONS_DAYS", 30)

# Networks of our own that people's webhooks may reach all the same; all others that are not public are refused.
WEBHOOK_NETWORKS = env_network_texts("SIGNALBOX_WEBHOOK_NETWORKS")
# The transparency log (coordinator/transparency): its signing key, and where its checkpoints are sent.
AUDIT_KEY_FILE = Path(env_str("SIGNALBOX_AUDIT_KEY", str(DATA_DIR / "audit_key"))).expanduser().absolute()
# What seals credentials in the database (coordinator/secrets/keyring.py); empty for the file in the data folder.
CREDENTIAL_KEYS_FILE = env_str("SIGNALBOX_CREDENTIAL_KEYS", "")
AUDIT_CHECKPOINTS = env_list("SIGNALBOX_AUDIT_CHECKPOINTS")
# Decisions as OpenTelemetry (coordinator/actions/audit/decision_events.py): an OTLP address over HTTP,
# and headers for it.
OTLP_ENDPOINT = env_str("SIGNALBOX_OTLP_ENDPOINT", "").rstrip("/")
OTLP_HEADERS = env_headers("SIGNALBOX_OTLP_HEADERS")
if OTLP_ENDPOINT and split_url_setting("SIGNALBOX_OTLP_ENDPOINT", OTLP_ENDPOINT).scheme not in {
    "http",
    "https",
}:
    raise ImproperlyConfigured(
        f"SIGNALBOX_OTLP_ENDPOINT must be an http(s) address such as http://127.0.0.1:4318, not {OTLP_ENDPOINT!r}."
    )

EMAIL_HOST = env_str("SIGNALBOX_SMTP_HOST", "")
EMAIL_PORT = env_int("SIGNALBOX_SMTP_PORT", 587, least=1)
EMAIL_HOST_USER = env_str("SIGNALBOX_SMTP_USER", "")
EMAIL_HOST_PASSWORD = os.environ.get("SIGNALBOX_SMTP_PASSWORD", "")
EMAIL_USE_TLS = env_bool("SIGNALBOX_SMTP_TLS", True)
EMAIL_TIMEOUT = 10
DEFAULT_FROM_EMAIL = env_str("SIGNALBOX_MAIL_FROM", "signalbox@localhost")

LOG_FORMAT = env_str("SIGNALBOX_LOG_FORMAT", "text").lower()
if LOG_FORMAT not in {"text", "json"}:
    raise ImproperlyConfigured(f"SIGNALBOX_LOG_FORMAT must be text or json, not {LOG_FORMAT!r}.")
LOG_LEVEL = env_str("SIGNALBOX_LOG_LEVEL", "INFO").upper()
if LOG_LEVEL not in logging.getLevelNamesMapping():
    raise ImproperlyConfigured(
        f"SIGNALBOX_LOG_LEVEL must be DEBUG, INFO, WARNING or ERROR, not {LOG_LEVEL!r}."
    )
# Which requests get a line: `slow` means answers of 500 and more, and those that took longer than a second.
ACCESS_LOG = env_str("SIGNALBOX_ACCESS_LOG", "slow").lower()
if ACCESS_LOG not in {"off", "slow", "all"}:
    raise ImproperlyConfigured(f"SIGNALBOX_ACCESS_LOG must be off, slow or all, not {ACCESS_LOG!r}.")
_MASK = "ext://coordinator.secrets.masking.mask_log_line"
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "text": {"()": "coordinator.lib.logs.ReadableFormatter", "mask": _MASK},
        "json": {"()": "coordinator.lib.logs.JsonFormatter", "mask": _MASK},
    },
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": LOG_FORMAT}},
    "root": {"handlers": ["stderr"], "level": LOG_LEVEL},
    "loggers": {
        "django": {"level": "INFO"},
        "django.server": {"level": "WARNING"},
        # The page of the refusal says it in one line; anybody may send such a name, as often as they like.
        "django.security.DisallowedHost": {"handlers": [], "propagate": False},
        "botocore": {"level": "WARNING"},
    },
}
