"""The product's settings for servers and commands that tests start, but for two.

Trying a password is cheap: Argon2 takes 100 MB and an eighth of a second of both cores, for each of some hundred
sign-ins. And a hook is answered when what it tells is written, so that tests can read it at once on a busy machine too.
"""

from __future__ import annotations

import os

from coordinator.settings import *  # noqa: F403
from coordinator.settings import PASSWORD_HASHERS as OF_THE_PRODUCT

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher", *OF_THE_PRODUCT]
HOOK_ANSWER_AFTER = float(os.environ.get("TESTS_HOOK_ANSWER_AFTER", "20"))
