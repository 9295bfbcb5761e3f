"""Shapes of secrets in text that machines write, in addition to vendors' keys: values next to names of secrets.

Everything that reads a whole text is an RE2 expression over UTF-8, linear in its length whatever it holds; `re` is
for single values, by expressions that cannot backtrack, because calling it is cheaper. Texts may themselves be
JSON, once or several times over: quotes may be escaped, and a line break may be `\\n`.
`coordinator.secrets` is wider: a person who types a setting is warned too often rather than too rarely. Here every
other word of an agent's code would be a secret, so a name must end in what makes it one and its value look it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import re2

from coordinator.secrets.vendors import BEGINNINGS


class SecretShape(NamedTuple):
    """One kind of secret: what people call it, where it is (the whole match, else its one group), and its mark.

    The mark is found in the JSON of every text that holds one, or the text is not looked at closely.
    """

    kind: str
    pattern: str
    mark: str


# A word begins; in JSON within a text, the character before it may be the letter of an escape.
_BEGIN = r"(?:\b|\\[nrt])"
_LINE = r"(?:\s|\\+[nrt]|[0-9]{1,6}(?:→|\\+u2192|[|:\t])|[\"',+>|-])"  # between a key's lines: breaks, numbers, quotes
_KEY_TYPE = r"(?:[A-Z0-9]{1,12} ){0,3}PRIVATE KEY(?: BLOCK)?-----"
_KEY_HEAD = r"(?:Proc-Type|DEK-Info|Version|Comment|Hash|Charset): ?[^\n\\\"']*"
_ADDRESS = r"://[^\s/?#:@\"'<>\\`]*:"
_GAP = r"(?:\s|\\+[nrt])+"
_WORD = r"[^\s\\\"']+"

KNOWN = (
    SecretShape("private key", rf"-----BEGIN {_KEY_TYPE}(?:{_LINE}*{_KEY_HEAD})*(?:{_LINE}*[A-Za-z0-9+/=]{{16,}})+"
          rf"(?:{_LINE}*[A-Za-z0-9+/=]{{0,64}}{_LINE}*-----END {_KEY_TYPE})?", "-----BEGIN "),
    SecretShape("private key", rf"Private-Lines: ?[0-9]{{1,4}}((?:{_LINE}+[A-Za-z0-9+/=]{{16,}})+)", "Private-Lines:"),
    SecretShape("Slack webhook", r"hooks\.slack\.com/(?:services|workflows|triggers)/([A-Za-z0-9][A-Za-z0-9/_-]{19,})",
          r"hooks\.slack"),
    SecretShape("Discord webhook", r"discord(?:app)?\.com/api/webhooks/[0-9]{5,25}/([A-Za-z0-9_-]{40,100})",
          r"discord(?:app)?\.com/api"),
    SecretShape("Discord token", rf"{_BEGIN}([MNO][A-Za-z0-9_-]{{23,27}}\.[A-Za-z0-9_-]{{6}}\.[A-Za-z0-9_-]{{27,40}})",
          r"\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27}"),
    SecretShape("Telegram token", rf"{_BEGIN}([0-9]{{8,10}}:AA[A-Za-z0-9_-]{{33}})", r":AA[A-Za-z0-9_-]{33}"),
    SecretShape("JSON Web Token", r"eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}",
          r"eyJ[A-Za-z0-9_-]{8,}\.eyJ"),
    SecretShape("Azure client secret", r"[A-Za-z0-9_~.-]{3}[0-9]Q~[A-Za-z0-9_~.-]{31,34}",
          r"[0-9]Q~[A-Za-z0-9_~.-]{8}"),
    SecretShape("Azure key", r"[A-Za-z0-9]{52}JQQJ9[9D][A-Za-z0-9]{10,30}[A-Za-z0-9+/=]{0,8}", r"JQQJ9[9D]"),
    SecretShape("Azure DevOps token", r"[A-Za-z0-9]{60,80}AZDO[A-Za-z0-9]{4}", "AZDO[A-Za-z0-9]{4}"),
    SecretShape("Terraform token", r"[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=-]{60,}", r"\.atlasv1\."),
    SecretShape("New Relic key", r"[a-f0-9]{36}NRAL", r"[a-f0-9]{8}NRAL"),
    SecretShape("Mailgun key", rf"{_BEGIN}([a-f0-9]{{32}}-[a-f0-9]{{8}}-[a-f0-9]{{8}})\b",
          r"[a-f0-9]{9}-[a-f0-9]{8}-[a-f0-9]{8}"),
    SecretShape("Mailchimp key", rf"{_BEGIN}([a-f0-9]{{32}}-us[0-9]{{1,2}})\b", r"[a-f0-9]{16}-us[0-9]"),
    SecretShape("password", rf"{_ADDRESS}([^\s/?#@\"'<>\\`]+)@", rf"{_ADDRESS}[^\s/?#@\"'<>\\`]+@"),
    SecretShape("signature", r"(?i:[?&](?:sig|x-amz-signature|x-goog-signature)=)([A-Za-z0-9%+/=_-]{30,})",
          "(?i:[?&](?:sig|x-amz-signature|x-goog-signature)=)"),
    # .netrc, .pgpass
    SecretShape(
        "password",
        rf"{_BEGIN}(?:(?:machine{_GAP}{_WORD}|default){_GAP}(?:login|account){_GAP}{_WORD}(?:{_GAP}account{_GAP}{_WORD})?"
        rf"|machine{_GAP}{_WORD}\.{_WORD}){_GAP}password{_GAP}({_WORD})",
        r"(?:machine|default)(?:\s|\\)[^\"]*password(?:\s|\\)",
    ),
    SecretShape("password", rf":5432:[^\s:]{{1,64}}:[^\s:]{{1,64}}:({_WORD})", ":5432:"),
)  # fmt: skip

# A value next to one of these is a secret unless it is a placeholder.
_STRONG = (
    r"passw(?:or)?ds?|passphrase|passcode|pwd|secrets?|credentials?|client[_.-]?secret|shared[_.-]?access[_.-]?key|"
    r"(?:secret|private|api|access|signing|encryption|master|account|auth|ssh|storage|shared|app|application|"
    r"license|deploy|webhook|hmac|jwt|cipher|admin|service|bot)[_.-]?keys?|"
    r"(?:auth|access|refresh|bearer|api|id|bot|app|deploy|personal|private|oauth|security|secret|github|gh|gitlab|"
    r"npm|pypi|slack|vault|admin)[_.-]?tokens?"
)
# Next to one of these only a value that looks random is.
_WEAK = r"token|auth|authorization|x-api-key|cookie|jwt|bearer"
_AFTER = r"(?:[_.-]?(?:[0-9]{1,3}|b64|base64|live|prod|test|dev|staging|old|new|value))?"
STRONG_NAME = re2.compile(rf"(?i)^[A-Za-z0-9_. -]{{0,64}}?(?:{_STRONG}){_AFTER}$")
WEAK_NAME = re2.compile(rf"(?i)^[A-Za-z0-9_. -]{{0,64}}?(?:{_WEAK}){_AFTER}$")
# Tokens that are places in a list or marks in a text.
HARMLESS_NAME = re2.compile(
    r"(?i)(?:^|[_.-])(?:next|prev|page|paging|continuation|continue|cursor|sync|resume|cancellation|cancel|eos|bos|pad|mask|"
    r"unk|stop|sep|cls|special|public)[_.-]?[a-z]*$|(?:next|page|continuation|cancellation|sync)token$"
)

_TYPE = r"(?:\s?:\s?[A-Za-z_][A-Za-z0-9_\[\]| .]*)?"
# The end of a name and what leads to its value: name = …, "name": …, NAME=…, name: str = …, 'name' => …, --name …;
# in JSON within a text also "--name", "…" and "NAME", "value": "…".
NAMED = re2.compile(
    rf"(?i:{_STRONG}|{_WEAK}){_AFTER}(?:\\*[\"'`]?{_TYPE}\s{{0,8}}(?:=>|:=|=|:)\s{{0,8}}|[ \t]{{1,8}}"
    r"|\\*[\"']\s{0,8},\s{0,8}(?:\\*[\"'](?i:value)\\*[\"']\s{0,8}:\s{0,8})?)".encode()
)
BARE = re.compile(rb"[^\s\"'`,;&|<>(){}\[\]$\\]+")
# Commands that take a password in a short flag, up to their end, and what leads to it in each. To curl `-p` is a
# switch, and mysql takes a password only right behind it: the next word is an address, a database, a command.
COMMANDS = re2.compile(rb"\b(curl|mysql|sshpass)(?:dump|admin)?\s[^\n|;&]*")
_QUOTE = r"\\*[\"']?"
_FLAGS_VALUE = r"([^\s\"'$\\-][^\s\"'$\\]*)"
SHORT_FLAGS = {
    b"curl": re2.compile(rf"\s(?:-u|--user)[ =]?{_QUOTE}[^\s:\"'$]+:{_FLAGS_VALUE}".encode()),
    b"mysql": re2.compile(rf"\s-p{_QUOTE}{_FLAGS_VALUE}".encode()),
    b"sshpass": re2.compile(rf"sshpass\s+(?:-v\s+)*-p *{_QUOTE}{_FLAGS_VALUE}".encode()),
}
# Authorization: Bearer value; Cookie: name=value; name=value
HEADERS = (
    SecretShape(
        "credentials",
        r"(?i:authorization)\\*[\"'`]?\s{0,8}[:=]\s{0,8}\\*[\"'`]?"
        r"(?i:basic|bearer|token|digest|negotiate|apikey|bot|ssws|flyv1)\s{1,8}([^\s\"'`,;&|<>(){}\[\]$\\]{6,})",
        r"(?i:authorization)\\*[\"'`]?\s{0,8}[:=]",
    ),
    SecretShape(
        "bearer token", rf"(?i:{_BEGIN}bearer)\s{{1,8}}([A-Za-z0-9._~+/-]{{16,}}=*)", r"(?i:bearer)(?:\s|\\)"
    ),
    SecretShape(
        "cookie",
        r"(?i:cookie)\\*[\"'`]?\s{0,8}:\s{0,8}\\*[\"'`]?([A-Za-z0-9_.-]+=[^\r\n\"'`\\]{8,})",
        r"(?i:cookie\W)",
    ),
)

FLAG = re2.compile(rf"(?i)^--?[A-Za-z0-9-]{{0,40}}?(?:{_STRONG}|{_WEAK})$")

DIGIT, LETTER, SPACE = re.compile(r"[0-9]"), re.compile(r"[A-Za-z]"), re.compile(r"\s")

_WORDS = """
password passwd pass pwd passphrase secret token key apikey api_key string str text bytes number int
bool boolean none null nil undefined true false required optional hidden redacted masked removed
empty unset missing invalid valid unknown default any object array list dict option options flag
flags argument value values parameter file stdin prompt username user current-password new-password
is was are to or and for from in if with the a an of on by not must should can may will as at be it
this that when then than
"""
PLACEHOLDERS = frozenset(_WORDS.split())
HOLLOW = re.compile(
    r"(?i)^(?:[x*.•_-]+|your[_-].*|my[_-]?(?:password|secret|token|key)|\.\.\.+.*|changeit|…)$"
)
# An identifier, a path through objects, a call: code that names a secret and holds none.
CODE = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*(?:\??\.[A-Za-z_][A-Za-z0-9_]*)+$")

# This alone can neither run nor expand, nor name a file to read (`@file`) or who at a host (`who@host`).
INERT = re.compile(r"^[A-Za-z0-9+=_%:,#!^?][A-Za-z0-9+/=_.%:,#!^?~-]*$")
# Where data could go: an address, a host's name or number, with what may follow it.
PLACE = re.compile(
    r"(?i)://|%2e|\.(?:[a-z]{2,24}|xn--[a-z0-9-]+|[0-9]+|0x[0-9a-f]+)\.?(?:[:/?#]|$)"
    r"|^(?:[0-9]{1,12}(?::[0-9]*)?[/?#]|0x0*[0-9a-f]{1,8}(?:[:/?#]|$))"
)
# What may hold a slash without being a path, if its letters are mixed.
BASE64 = re.compile(r"^[A-Za-z0-9+/=_%-]{20,}$")
# Right behind a secret: the rest of a host's name, whatever quotes a shell would take away.
HOST_GOES_ON = re.compile(rb"(?i)[\"'\\]*(?:\.|%2e)[\"'\\]*[a-z0-9]")
# Right before one: the beginning of a line, where a word is what runs.
LINE_BEGINS = re.compile(rb"\n[ \t\"'\\]*$")
# What programs go by, set for those that come after: `export password: PATH=…`.
_PROGRAMS_GO_BY = r"(?:[A-Z][A-Z0-9_]*|[a-z_]*(?:proxy|path))="
VARIABLE = re.compile(rf"^{_PROGRAMS_GO_BY}[^=]")
VARIABLE_AS_TYPE = re2.compile(rf":[^=]*?{_PROGRAMS_GO_BY}$".encode())
# A private key as people keep them: lines of base64 between words, spaces, quotes and commas. Nothing else fits.
_BREAK = r"(?:[\s\"',+]|\\+[nrt])"
KEY = re2.compile(
    rf"-----BEGIN {_KEY_TYPE}{_BREAK}*(?:(?:Proc-Type|DEK-Info|Version|Comment|Hash): ?[A-Za-z0-9 ,.:_-]*{_BREAK}+)*"
    rf"((?:[A-Za-z0-9+/=]|{_BREAK})*)(?:-----END {_KEY_TYPE})?"
)
KEY_WORD = re.compile(r"\\+[nrt]|([A-Za-z0-9+/=]+)")  # no word for a break
# What begins like a path and is the base64 of 30 bytes.
AWS_SECRET = re.compile(r"^/(?=.{39}$)[A-Za-z0-9+]{8,}(?:/[A-Za-z0-9+]*){0,2}$")
ROOTED = re.compile(r"^/[^/]{0,12}/")

IN_LOGS = (
    re.compile(r"\bsbx_()[A-Za-z0-9_-]{6,}"),
    re.compile(r"://()[^\s/?#:@]{0,200}:[^\s/?#@]{1,200}(?=@)"),
    re.compile(r"(?i)\b(?:bearer|basic) ()[A-Za-z0-9._~+/=-]{6,}"),
    re.compile(
        r"(?i)\b(?:api_?key|token|password|secret|cookie)['\"]?\s*[=:]\s*['\"]?()(?!\[masked: )[^\s&'\",;]+"
    ),
)

# Where this is not found, in an event's JSON as it is, there is no secret. It is put together from the marks
# that are listed with the shapes, so that none can be narrower than what it is for. Bounds of words are not asked for,
# since before them JSON may have put an escape.
MARKS = re2.compile(
    (
        "|".join(dict.fromkeys((BEGINNINGS, *(shape.mark for shape in (*KNOWN, *HEADERS)))))
        + rf"|(?i:curl|mysql|sshpass)|(?i:{_STRONG}|{_WEAK}){_AFTER}"
        rf"(?:\\*[\"'`])?(?:{_TYPE}\s{{0,8}}[:=,]|[ \t]+[^ \t])"
    ).encode()
)
