"""Random texts that an expression matches, so that what looks for keys is tried with thousands of each kind."""

from __future__ import annotations

import functools
import random
import re._constants as sre
import re._parser as parser
import string
from typing import Any

# What stands for any character at all; a class that leaves some out takes the others of these.
PLAIN = string.ascii_letters + string.digits


def text_of(pattern: str, rng: random.Random) -> str:
    """Return a random text that the whole of a pattern matches."""
    return _made(_parsed(pattern), rng)


_parsed = functools.lru_cache(parser.parse)  # one pattern makes hundreds of texts


def _made(nodes: Any, rng: random.Random) -> str:
    return "".join(_one(kind, what, rng) for kind, what in nodes)


def _one(kind: Any, what: Any, rng: random.Random) -> str:
    if kind is sre.LITERAL:
        return chr(what)
    if kind is sre.IN:
        return rng.choice(_class(tuple(what)))
    if kind is sre.BRANCH:
        return _made(rng.choice(what[1]), rng)
    if kind is sre.SUBPATTERN:
        return _made(what[3], rng)
    if kind in {sre.MAX_REPEAT, sre.MIN_REPEAT}:
        return _repeated(*what, rng)
    if kind in {sre.AT, sre.ASSERT, sre.ASSERT_NOT}:
        return ""  # bounds of words are the context's
    raise NotImplementedError(kind)


def _repeated(least: int, most: int, what: Any, rng: random.Random) -> str:
    """Return what is repeated; of anything that is not in a class a dozen, as a password has."""
    if what[0][0] is sre.IN and what[0][1][0][0] is sre.NEGATE:
        least = max(least, min(12, most))
    count = rng.randint(least, min(most, least + 12))
    if len(what) == 1 and what[0][0] is sre.IN:
        signs = _class(tuple(what[0][1]))
        return "".join([rng.choice(signs) for _ in range(count)])
    return "".join(_made(what, rng) for _ in range(count))


@functools.cache
def _class(members: tuple[Any, ...]) -> str:
    if members[0][0] is sre.NEGATE:
        return "".join(sorted(set(PLAIN) - set(_class(members[1:]))))
    found = ""
    for kind, what in members:
        if kind is sre.LITERAL:
            found += chr(what)
        elif kind is sre.RANGE:
            found += "".join(map(chr, range(what[0], what[1] + 1)))
        elif kind is sre.CATEGORY and what is sre.CATEGORY_SPACE:
            found += " "  # in JSON others are escapes, which are tried by their own shapes
        elif kind is not sre.CATEGORY:
            raise NotImplementedError(kind)
    return found
