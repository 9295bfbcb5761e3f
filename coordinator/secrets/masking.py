"""Masking of secrets in what machines write:

`[masked: GitHub token 3f9a1c2e…]` replaces a secret.

The 32 hexadecimal digits (older rows have 8) are half of a keyed digest of the secret, which is enough to rule
out collisions: the same secret is recognised wherever it comes again, two secrets never look alike, and
nobody who reads a mask, or has the database, can try out guesses. People read the first eight
(`shorten_mask_digests`). What decides compares digests of unmasked values all the same
(coordinator.secrets.digests). A masked text holds nothing to mask again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from heapq import merge
from operator import itemgetter
from typing import Any

import msgspec
import re2
from django.conf import settings

from coordinator.errors import RequestTooLarge
from coordinator.secrets import shapes, vendors
from coordinator.secrets.digests import keyed_hmac

MASK = re2.compile(r"\[masked: [A-Za-z0-9 ]{1,40} [0-9a-f]{8}(?:[0-9a-f]{24})?\]")
_LONG_MASK = re.compile(r"(\[masked: [A-Za-z0-9 ]{1,40} [0-9a-f]{8})[0-9a-f]{24}\]")
SHORTEST = 6  # characters of text that can hold a secret and what gives it away
LONGEST_NAME = 100
# Places of one event that are examined closely (about 10 µs each); what follows them is left out whole.
MOST_CANDIDATES = 50_000
LEFT_OUT = "[masked: the rest, which holds too much that looks like secrets]"


_SHAPES = (*shapes.KNOWN, *shapes.HEADERS)
_ANY = re2.compile("|".join(shape.pattern for shape in _SHAPES).encode())
_ONE = tuple(re2.compile(shape.pattern.encode()) for shape in _SHAPES)
_WHICH = re2.Set.MatchSet()
for _shape in _SHAPES:
    _WHICH.Add(_shape.pattern)
_WHICH.Compile()
_KEY_BEGINS = re2.compile(vendors.BEGINNINGS.encode())


Found = tuple[int, int, str]  # where a secret is in a text, and its kind
_start = itemgetter(0)


def secret_digest(secret: str) -> str:
    return keyed_hmac(secret.encode("utf-8", "surrogatepass"))[:16].hex()


@dataclass(slots=True)
class SecretMasker:
    """Masks values and counts what it masked.

    `judged`: a person decides by what is left, so everything that could run, expand or lead elsewhere stays
    readable, even where it takes a secret's place. `originals`: where given, each mask's secret.
    `cut`: a text held more than is looked at, and its rest was left out.
    """

    judged: bool = False
    originals: dict[str, str] | None = None
    count: int = field(default=0, init=False)
    cut: bool = field(default=False, init=False)
    _candidates_left: int = field(default=MOST_CANDIDATES, init=False)

    def mask_to_json(self, value: Any) -> str | None:
        """Return the masked value as JSON text; None for None."""
        return None if value is None else self.mask_json_bytes_to_text(msgspec.json.encode(value))

    def mask_json_bytes_to_text(self, raw: bytes) -> str:
        if shapes.MARKS.search(raw) is None:
            return raw.decode()
        return msgspec.json.encode(self._mask_json_value_in_place(msgspec.json.decode(raw))).decode()

    def mask_values_and_texts(
        self, values: Sequence[Any], texts: Sequence[str | None]
    ) -> tuple[list[str | None], list[str | None]]:
        """Return the values as `encoded` gives them and the texts as `text` does, in the same order.

        All are searched at once first: most hold no secret.
        """
        raws = [None if value is None else msgspec.json.encode(value) for value in values]
        spoken = [None if text is None else text.encode("utf-8", "surrogatepass") for text in texts]
        parts = [raw for raw in (*raws, *spoken) if raw is not None]
        mark = shapes.MARKS.search(b"\n".join(parts))
        if mark is None:
            return [None if raw is None else raw.decode() for raw in raws], list(texts)
        masked, at, first = [], 0, mark.start()  # the text before the first mark holds none
        for raw in raws:
            at += 0 if raw is None else len(raw) + 1
            masked.append(
                None if raw is None else raw.decode() if at <= first else self.mask_json_bytes_to_text(raw)
            )
        return masked, [self.mask_text(text) for text in texts]

    def mask_value(self, value: Any) -> Any:
        """Return a masked copy of a JSON value, or the value itself where nothing is masked."""
        if value is None or isinstance(value, bool | int | float):
            return value
        if isinstance(value, str):
            return self.mask_text(value)
        raw = msgspec.json.encode(value, enc_hook=str)
        return (
            value
            if shapes.MARKS.search(raw) is None
            else self._mask_json_value_in_place(msgspec.json.decode(raw))
        )

    def mask_text(self, text: str | None) -> str | None:
        if text is None or len(text) < SHORTEST:
            return text
        raw = text.encode("utf-8", "surrogatepass")
        if shapes.MARKS.search(raw) is None:
            return text
        pieces, end = [], 0
        secrets_found, read = self._find_secret_spans_and_end(raw)
        for start, stop, kind in secrets_found:
            acts = self.judged and could_secret_text_be_executed(raw, start, stop, kind)
            mask = (
                None
                if acts
                else self._make_and_record_mask(kind, decode_byte_range_as_text(raw, start, stop))
            )
            if mask is not None:
                pieces += [raw[end:start], mask.encode()]
                end = stop
        if read < len(raw):
            pieces += [raw[end : max(end, read)], LEFT_OUT.encode()]
            end = len(raw)
        return b"".join([*pieces, raw[end:]]).decode("utf-8", "surrogatepass") if pieces else text

    def mask_entire_text_as_secret(self, text: str, kind: str) -> str:
        """Return the mask of a text that is a secret as a whole, whatever it looks like."""
        return self._make_and_record_mask(kind, text) or text

    def _make_and_record_mask(self, kind: str, secret: str) -> str | None:
        """Return the mask that replaces the secret, or None where it must be seen."""
        if self.judged and not (
            is_pure_private_key(secret) if kind == "private key" else is_text_without_code_or_address(secret)
        ):
            return None
        mask = f"[masked: {kind} {secret_digest(secret)}]"
        if self.originals is not None:
            self.originals[mask] = secret
        self.count += 1
        return mask

    def _find_secret_spans_and_end(self, raw: bytes) -> tuple[list[Found], int]:
        """Return where secrets are in a text, in order, and how far it was read; of two that overlap, the first."""
        secrets_found: list[Found] = []
        end = 0
        named_secrets = iterate_named_secret_candidates(raw, judged=self.judged)
        after_commands = iterate_command_password_candidates(raw, judged=self.judged)
        for start, stop, kind in merge(
            iterate_vendor_key_candidates(raw),
            iterate_shaped_secret_candidates(raw),
            named_secrets,
            after_commands,
            key=_start,
        ):
            self._candidates_left -= 1
            if self._candidates_left < 0:
                self.cut = True
                return secrets_found, start
            if kind and start >= end:
                secrets_found.append((start, stop, kind))
                end = stop
        return secrets_found, len(raw)

    def _mask_json_value_in_place(self, root: Any) -> Any:
        """Mask a freshly decoded value in place and return it."""
        top = [root]
        waiting: list[Any] = [top]
        while waiting:
            holder = waiting.pop()
            for key, item in self._mask_names_and_find_item_masks(holder):
                holder[key] = item
            waiting += [
                inner_value
                for inner_value in (holder.values() if isinstance(holder, dict) else holder)
                if is_json_container(inner_value)
            ]
        return top[0]

    def _mask_names_and_find_item_masks(self, holder: Any) -> list[tuple[Any, str]]:
        """Return what of a list or object is replaced, and by what; the names of an object are masked at once."""
        if isinstance(holder, list):
            return self._find_masks_for_list_items(holder)
        names = [self.mask_text(name) or "" for name in holder]
        if names != list(holder):
            items = list(zip(names, holder.values(), strict=True))
            holder.clear()
            holder.update(items)
        pair_name = name_in_name_value_object(holder)
        return [
            (name, masked)
            for name, item in holder.items()
            if (
                masked := self._mask_item_by_its_name(
                    pair_name if name == "value" and pair_name else name, item
                )
            )
            != item
        ]

    def _find_masks_for_list_items(self, items: list[Any]) -> list[tuple[int, str]]:
        replacements: list[tuple[int, str]] = []
        flag = ""  # that a secret may follow
        for index, item in enumerate(items):
            if not isinstance(item, str):
                flag = ""
                continue
            secret = bool(flag) and (not self.judged or is_certain_command_flag_secret(flag, item))
            masked = self._mask_item_by_its_name("password" if secret else "", item)
            if masked != item:
                replacements.append((index, masked))
            flag = item if not secret and item.startswith("-") and shapes.FLAG.search(item) else ""
        return replacements

    def _mask_item_by_its_name(self, name: str, item: Any) -> Any:
        """Return a value as it may be shown by its name: texts are masked whole under a secret's, lists' too."""
        if isinstance(item, list):
            if (
                item
                and name
                and classify_secret_name_strength(name)
                and all(isinstance(list_item, str) for list_item in item)
            ):
                return [self._mask_item_by_its_name(name, list_item) for list_item in item]
            return item
        if not isinstance(item, str) or not item:
            return item
        if (
            name
            and (strength := classify_secret_name_strength(name))
            and is_named_value_secret(item, strong=strength == "strong")
        ):
            at = item.find(" ") + 1 if item[:12].lower().startswith(("bearer ", "basic ", "token ")) else 0
            mask = self._make_and_record_mask(classify_secret_kind_or_default(name, item[at:]), item[at:])
            if mask is not None:
                return item[:at] + mask
        return self.mask_text(item)


def is_json_container(value: Any) -> bool:
    return isinstance(value, dict | list)


def name_in_name_value_object(holder: dict[str, Any]) -> str | None:
    """Return the name that `{"name": …, "value": …}` gives its value."""
    if "value" not in holder:
        return None
    names = (holder.get(name) for name in ("name", "key", "Name", "Key"))
    return next((name for name in names if isinstance(name, str)), None)


@lru_cache(maxsize=4_096)
def classify_secret_name_strength(name: str) -> str:
    """Say how surely a name is a secret's: `strong`, `weak`, or not at all."""
    if len(name) > LONGEST_NAME or shapes.HARMLESS_NAME.search(name):
        return ""
    return "strong" if shapes.STRONG_NAME.search(name) else "weak" if shapes.WEAK_NAME.search(name) else ""


def classify_secret_kind_or_default(name: str, secret: str) -> str:
    if len(secret) >= 16:
        if key := vendors.KEY.match(secret.encode("utf-8", "surrogatepass"), 0, vendors.LONGEST):
            return vendors.KEYS[(key.lastindex or 1) - 1].kind
        if shaped := _WHICH.Match(secret):
            return _SHAPES[min(shaped)].kind
    lowered = name.lower()
    for word, kind in (
        ("pass", "password"), ("pwd", "password"), ("token", "token"), ("cookie", "cookie"), ("key", "key"),
        ("auth", "credentials"), ("bearer", "token"), ("credential", "credentials"),
    ):  # fmt: skip
        if word in lowered:
            return kind
    return "secret"


def is_named_value_secret(value: str, *, strong: bool) -> bool:
    """Say whether the whole of a value under a secret's name is one."""
    if is_secret_placeholder(value):
        return False
    return strong or (len(value) >= 12 and looks_random(value))


def is_secret_placeholder(value: str) -> bool:
    """Say whether a value is no secret but a substitute for one: a variable, a template, a mask, a placeholder."""
    stripped = value.strip()
    if len(stripped) < 3 or stripped[0] in "$<{%[" or stripped.startswith(("./", "~/", "process.env")):
        return True
    if stripped[0] == "/" and not (
        shapes.AWS_SECRET.search(stripped) and has_digits_and_both_cases(stripped)
    ):
        return True
    return stripped.lower() in shapes.PLACEHOLDERS or shapes.HOLLOW.search(stripped) is not None


# Kinds that are recognised by the text next to them, not by the secret itself.
CONTEXT_KINDS = frozenset({"password", "token", "cookie", "key", "credentials", "secret", "bearer token"})


def is_certain_command_flag_secret(flag: str, text: str) -> bool:
    """Say whether the word behind a flag is surely its secret and no program to run, as in `env -utoken mkfs.ext4`."""
    return looks_random(text) and (flag.startswith("--") or has_digits_and_both_cases(text))


def could_secret_text_be_executed(raw: bytes, start: int, stop: int, kind: str) -> bool:
    """Say whether the text in a secret's place could be a word that runs, or the beginning of a host's name."""
    if shapes.HOST_GOES_ON.match(raw, stop, stop + 100):
        return True
    if kind not in CONTEXT_KINDS or (raw[start - 1 : start] == b":" and raw[stop : stop + 1] == b"@"):
        return False  # a key that gives itself away, or a password inside an address
    if shapes.LINE_BEGINS.search(raw[max(0, start - 16) : start]):
        return True
    text = decode_byte_range_as_text(raw, start, stop)
    return not looks_random(text) or shapes.VARIABLE.search(text) is not None


def is_text_without_code_or_address(secret: str) -> bool:
    """Say whether a text can neither run nor expand and names no address, host or path."""
    if not shapes.INERT.search(secret) or shapes.PLACE.search(secret):
        return False
    return "/" not in secret or (
        shapes.BASE64.search(secret) is not None and has_digits_and_both_cases(secret)
    )


def is_pure_private_key(secret: str) -> bool:
    """Say whether a private key is one throughout, without a line that could be a command or a path."""
    match = shapes.KEY.fullmatch(secret) if secret.isascii() else None
    return match is not None and all(
        (has_digits_and_both_cases(word) or word.endswith("="))
        and "=" not in word.strip("=")
        and not shapes.ROOTED.search(word)
        for word in shapes.KEY_WORD.findall(match.group(1))
        if word
    )


def has_digits_and_both_cases(text: str) -> bool:
    """Say whether a text has digits, small letters and large ones."""
    return shapes.DIGIT.search(text) is not None and not text.islower() and not text.isupper()


def looks_random(value: str) -> bool:
    """Say whether a text looks made by a machine: letters with digits among them, or long with changing cases."""
    if len(value) < 8 or shapes.SPACE.search(value) or not shapes.LETTER.search(value):
        return False
    if shapes.DIGIT.search(value):
        return True
    return len(value) >= 20 and not (value.islower() or value.isupper() or value.istitle())


NAME_BYTES = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-")
LONGEST_BEFORE = 64  # of a name, before the word in it that marks a secret
LONGEST_VALUE = 4_000  # in quotes
LONGEST_BARE = 1_000
EQUALS = ord("=")


def iterate_vendor_key_candidates(raw: bytes) -> Iterator[Found]:
    """Yield (start, stop, kind) of keys of known makers; kind is "" where a text only begins like one."""
    match = _KEY_BEGINS.search(raw)
    while match:
        start = match.start()
        key_match = vendors.KEY.match(raw, start, start + vendors.LONGEST)
        yield (
            start,
            key_match.end() if key_match else start,
            vendors.KEYS[(key_match.lastindex or 1) - 1].kind if key_match else "",
        )
        match = _KEY_BEGINS.search(raw, key_match.end() if key_match else start + 1)


def iterate_shaped_secret_candidates(raw: bytes) -> Iterator[Found]:
    """Yield (start, stop, kind) of other known shapes and headers; kind is "" where a text is none after all."""
    for match in _ANY.finditer(raw):
        number, (start, stop) = first_secret_shape_and_span(raw, *match.span())
        kind = _SHAPES[number].kind
        text = "" if kind in {"private key", "signature"} else decode_byte_range_as_text(raw, start, stop)
        fits = not text or not is_secret_placeholder(text.lstrip("/"))  # base64 may begin with one
        yield start, stop, kind if fits and (kind != "bearer token" or looks_random(text)) else ""


def first_secret_shape_and_span(raw: bytes, start: int, stop: int) -> tuple[int, tuple[int, int]]:
    """Return the number of the first shape that fits there, and where its secret begins and ends."""
    for number in sorted(_WHICH.Match(raw[start:stop])):
        match = _ONE[number].match(raw, start, stop)
        if match is not None:
            return number, match.span(min(1, _ONE[number].groups))
    return 0, (start, start)


def iterate_command_password_candidates(raw: bytes, *, judged: bool) -> Iterator[Found]:
    """Yield (start, stop, kind) of passwords in commands' short flags: `mysql -psecret`.

    `judged`: none that could be a path or an address, for a person must see those.
    """
    for command in shapes.COMMANDS.finditer(raw):
        match = shapes.SHORT_FLAGS[command.group(1)].search(raw, *command.span())
        if match is not None:
            text = decode_byte_range_as_text(raw, *match.span(1))
            yield (
                *match.span(1),
                "" if is_secret_placeholder(text) or (judged and "/" in text) else "password",
            )


def iterate_named_secret_candidates(raw: bytes, *, judged: bool) -> Iterator[Found]:
    """Yield (start, stop, kind) of values next to the names of secrets; kind is "" where a value is none.

    `judged`: the word after a flag may be a program to run, so it must look like the flag's value.
    """
    end = 0
    for match in shapes.NAMED.finditer(raw):
        if match.start() < end:
            continue
        name = full_name_around_match(match, raw)
        start, stop, quoted = find_value_bounds_at_offset(raw, match.end())
        text = decode_byte_range_as_text(raw, start, stop)
        if stop == start or is_secret_placeholder(text):
            yield start, start, ""
            continue
        gap = match.group().rstrip()[-1:]
        if gap in b"=:>":
            sure = is_secret_next_to_name(
                name, text, quoted=quoted, env=raw[start - 1] == EQUALS, after=raw[stop : stop + 2]
            ) and not (judged and shapes.VARIABLE_AS_TYPE.search(match.group()))
        else:
            sure = (
                name.startswith("-")
                and not text.startswith("-")
                and (not judged or is_certain_command_flag_secret(name, text))
            )
        yield start, stop, classify_secret_kind_or_default(name, text) if sure else ""
        end = stop if sure else end


def find_value_bounds_at_offset(raw: bytes, at: int) -> tuple[int, int, bool]:
    """Return start and stop of the value at `at`, without its quotes, and whether it is quoted."""
    while raw[at : at + 1] == b"\\":
        at += 1
    quote = raw[at : at + 1]
    if quote in (b'"', b"'"):
        stop = raw.find(quote, at + 1, at + 1 + LONGEST_VALUE)
        value = raw[at + 1 : stop].rstrip(b"\\") if stop > 0 else b""
        return at + 1, at + 1 + (0 if b"\n" in value else len(value)), True
    match = shapes.BARE.match(raw, at, at + LONGEST_BARE)
    return (at, match.end(), False) if match and match.end() < at + LONGEST_BARE else (at, at, False)


def is_secret_next_to_name(name: str, text: str, *, quoted: bool, env: bool, after: bytes) -> bool:
    """Say whether the text next to a name is its secret. `env`: it is written NAME=value."""
    strength = classify_secret_name_strength(name)
    if not strength or (not quoted and is_probably_code_expression(text, after)):
        return False
    if strength == "weak":
        return len(text) >= 16 and looks_random(text)
    return (
        (not quoted and env and name.isupper())
        or (quoted and not shapes.SPACE.search(text))
        or looks_random(text)
    )


def decode_byte_range_as_text(raw: bytes, start: int, stop: int) -> str:
    return raw[start:stop].decode("utf-8", "surrogatepass")


def full_name_around_match(match: Any, raw: bytes) -> str:
    """Return the whole name whose end was matched."""
    start = at = match.start()
    while start > 0 and at - start < LONGEST_BEFORE and raw[start - 1] in NAME_BYTES:
        start -= 1
    while raw[at] in NAME_BYTES:
        at += 1
    return raw[start:at].decode()


def is_probably_code_expression(text: str, after: bytes) -> bool:
    return after[:1] in (b"(", b"[") or after == b"?." or shapes.CODE.search(text) is not None


def create_masker_if_enabled(*, judged: bool = False) -> SecretMasker | None:
    """Return a masker, or None where masking is switched off."""
    return SecretMasker(judged=judged) if settings.MASK_SECRETS else None


def mask_secrets_in_value(value: Any, *, judged: bool = False) -> Any:
    """Return a JSON value masked, unless masking is switched off; `judged` as for Masker.

    Raises RequestTooLarge where the rest of what a person is to judge would be left out.
    """
    masker = create_masker_if_enabled(judged=judged)
    if masker is None:
        return value
    shown_value = masker.mask_value(value)
    if judged and masker.cut:
        raise RequestTooLarge(
            "This contains too much that looks like secrets for a person to judge. Name a file instead."
        )
    return shown_value


def mask_log_line(text: str) -> str:
    """Return a line of Signalbox's own log without secrets, also where masking is switched off."""
    text = shorten_mask_digests(SecretMasker().mask_text(text) or "")
    for pattern in shapes.IN_LOGS:
        text = pattern.sub(lambda match: match.group()[: match.start(1) - match.start()] + "***", text)
    return text


def map_masks_to_original_secrets(*values: Any) -> dict[str, str]:
    """Return mask: secret for everything that is masked on a card with these values."""
    secret_masker = SecretMasker(judged=True, originals={})
    for value in values:
        secret_masker.mask_value(value)
    return secret_masker.originals or {}


def restore_masked_secrets(value: Any, originals: dict[str, str]) -> Any:
    """Return a JSON value with each mask of `originals` replaced by its secret; other masks stay."""
    if isinstance(value, str):
        return MASK.sub(lambda mask: originals.get(mask.group(), mask.group()), value)
    if isinstance(value, dict):
        return {name: restore_masked_secrets(item, originals) for name, item in value.items()}
    return [restore_masked_secrets(item, originals) for item in value] if isinstance(value, list) else value


def shorten_mask_digests(text: str) -> str:
    """Return a text with each mask's digest cut to eight digits, for people to read."""
    return _LONG_MASK.sub(r"\1]", text) if "[masked: " in text else text


def find_masks_in_value(value: Any) -> set[str]:
    text = value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=str).decode()
    return {mask.group() for mask in MASK.finditer(text)}
