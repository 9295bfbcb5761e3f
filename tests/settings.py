"""The product's settings on a throw-away data folder, so that a test run never touches `data/`."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

_folder = tempfile.mkdtemp(prefix="signalbox-tests-")
atexit.register(shutil.rmtree, _folder, ignore_errors=True)
os.environ["SIGNALBOX_DATA_DIR"] = _folder
os.makedirs(os.path.join(_folder, "static"))  # whitenoise warns of a folder that is not there
os.environ["SIGNALBOX_SECRET_KEY"] = "only-for-tests-" + "x" * 50
for _name in ("SIGNALBOX_BIND", "SIGNALBOX_PUBLIC_URL", "SIGNALBOX_ALLOWED_HOSTS", "SIGNALBOX_API_AUTH"):
    os.environ.pop(_name, None)

from coordinator.settings import *  # noqa: E402, F403
from coordinator.settings import DATABASES, STORAGES  # noqa: E402

if DATABASES["default"]["ENGINE"] == "coordinator.engine.sqlite":
    # A file, as in production: an in-memory database has no second connection, and so no lock and no WAL.
    DATABASES["default"]["TEST"] = {"NAME": os.path.join(_folder, "test.sqlite3")}
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
if DATABASES["default"]["ENGINE"] == "coordinator.engine.postgresql":
    # The tests kill servers, never PostgreSQL: nothing that they look at needs a commit to wait for the disk.
    DATABASES["default"]["OPTIONS"]["options"] += " -c synchronous_commit=off"
STORAGES = STORAGES | {
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
}
# A machine that runs tests may be slow; what takes too much processor time is plain here as well.
RENDERING_SECONDS = 20
