"""The product's settings for servers and commands that tests start, but for three.

Trying a password is cheap: Argon2 takes 100 MB and an eighth of a second of both cores, for each of some hundred
sign-ins. And a hook is answered when what it tells is written, so that tests can read it at once on a busy machine too.
And workers write down how far they follow the feed, so that tests can wait until a row of theirs is known.
"""

from __future__ import annotations

import os

from coordinator.settings import *  # noqa: F403
from coordinator.settings import INSTALLED_APPS as APPS_OF_THE_PRODUCT
from coordinator.settings import PASSWORD_HASHERS as OF_THE_PRODUCT

INSTALLED_APPS = [*APPS_OF_THE_PRODUCT, "tests.feed_positions.FeedPositions"]
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher", *OF_THE_PRODUCT]
HOOK_ANSWER_AFTER = float(os.environ.get("TESTS_HOOK_ANSWER_AFTER", "20"))
