"""Text with secrets and text without, as agents report it. No secret here is real, and each is put together from
pieces, so that nobody's scanner takes this file for a leak.

`{…}` in a text names a secret of SECRETS; it must not be left in what is stored. A text of HARMLESS must stay
byte for byte.
"""

from __future__ import annotations

from typing import Any


def _made(*parts: str) -> str:
    return "".join(parts)


ALNUM = "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7" * 4
HEX = "0f1e2d3c4b5a69788796a5b4c3d2e1f0" * 3

SECRETS = {
    "aws": _made("AK", "IA", "Q3EGRZ5TYU7WNB4K"),
    "aws_secret": _made("wJalrXUtnFEMI/K7MDENG/", "bPxRfiCYzR3alK3y91"),
    "aws_slash": _made("JalrXUtnFEMI9K7MDENG/", "bPxRfiCYzR3alK3y91"),
    "github": _made("gh", "p_", ALNUM[:36]),
    "github_app": _made("gh", "s_", ALNUM[:36]),
    "github_fine": _made("github", "_pat_", ALNUM[:22], "_", ALNUM[:59]),
    "gitlab": _made("gl", "pat-", ALNUM[:20]),
    "slack": _made("xo", "xb-", "123456789012-", ALNUM[:24]),
    "slack_hook": _made("T0123456", "/B0123456/", ALNUM[:24]),
    "stripe": _made("sk", "_live_", ALNUM[:24]),
    "openai": _made("sk", "-proj-", ALNUM[:48]),
    "openai_old": _made("sk", "-", ALNUM[:48]),
    "anthropic": _made("sk", "-ant-", "api03-", ALNUM[:90]),
    "google": _made("AI", "za", ALNUM[:35]),
    "npm": _made("np", "m_", ALNUM[:36]),
    "pypi": _made("py", "pi-", "AgEIcHlwaS5vcmc", ALNUM[:60]),
    "hugging": _made("h", "f_", "aBcDeFgHiJkLmNoPqRsTuVwXyZaBcDeFgH"),
    "jwt": _made("ey", "JhbGciOiJIUzI1NiJ9", ".ey", "JzdWIiOiIxMjM0In0", ".", ALNUM[:43]),
    "own": _made("sb", "x_", ALNUM[:43]),
    "word": "hunter22",
    "phrase": "correct horse battery",
    "symbols": "Tr0ub4dor&3(x)",
    "key_body": _made("MIIEpAIBAAKCAQEA7", ALNUM[:47]),
}
_PEM = _made(
    "-----BEGIN RSA ", "PRIVATE KEY-----\n{key_body}\n", ALNUM[:64], "\nab3d=\n-----END RSA ", "PRIVATE KEY-----"
)  # fmt: skip

_ENCRYPTED = _PEM.replace(
    "KEY-----\n{key", "KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,0F1E2D\n\n{key"
)
_PUTTY = "PuTTY-User-Key-File-3: ssh-rsa\nPrivate-Lines: 2\n{key_body}\n" + ALNUM[:64] + "\nPrivate-MAC: 0f"

# How many secrets the text holds, and the text.
TEXTS: list[tuple[int, str]] = [
    (1, "aws_access_key_id = {aws}"),
    (1, "aws_secret_access_key = {aws_secret}"),
    (1, "aws_secret_access_key = /{aws_slash}"),
    (1, "Cloning with {github} into 'shop'"),
    (1, "remote: https://x-access-token:{github_app}@github.com/acme/shop.git"),
    (1, "the token {github_fine}."),
    (1, "glab auth login -t {gitlab}"),
    (1, "slack says {slack}"),
    (1, "POST https://hooks.slack.com/services/{slack_hook}"),
    (1, 'stripe.api_key = "{stripe}"'),
    (2, "{openai} and {openai_old}"),
    (1, "x-api-key: {anthropic}"),
    (1, "https://maps.example/api?key={google}&q=1"),
    (1, "//registry.npmjs.org/:_authToken={npm}"),
    (1, "twine upload -u __token__ -p {pypi}"),
    (1, "login({hugging})"),
    (1, "session {jwt} expires"),
    (1, "SIGNALBOX_KEY={own}"),
    (1, "Authorization: Bearer {own}"),
    (1, 'curl -H "Authorization: Bearer {jwt}" https://api.example'),
    (1, 'curl -H "Authorization: Basic ' + "dXNlcjp{word}" + '" https://api.example'),
    (1, "curl -u bob:{word} https://api.example"),
    (1, "mysql -u root -p{word} shop"),
    (1, "sshpass -p {word} ssh host"),
    (1, "postgres://shop:{word}@db.internal:5432/shop"),
    (1, "redis://:{word}@cache:6379/0"),
    (1, "DB_PASSWORD={word}\nDB_HOST=db\n"),
    (1, "export PGPASSWORD={word}; psql"),
    (1, "PASSWORD=changeme"),
    (1, "password: {word}"),
    (1, 'password = "{symbols}"'),
    (1, "password: str = '{word}'"),
    (1, "{{'password' => '{word}'}}".replace("{{", "{").replace("}}", "}")),
    (1, '\\"client_secret\\": \\"{word}\\"'),
    (1, "login --user bob --password {word} --verbose"),
    (1, "login --password '{phrase}'"),
    (1, "login --api-key={word}"),
    (1, "Cookie: sessionid={word}abcdef; theme=dark"),
    (1, "https://blob.example/c?sv=2024&sig={aws_secret}"),
    (1, f"before\n{_PEM}\nafter"),
    (1, _PEM.replace("\n", "\\n")),
    (1, _ENCRYPTED),
    (1, _ENCRYPTED.replace("\n", "\\n")),
    (1, _PUTTY),
    (1, "machine api.example login bob password {word}\nmachine other.example"),
    (1, "machine api.example\n  password {word}\n  login bob"),
    (1, "default login bob password {word}"),
    (1, "db.internal:5432:shop:bob:{word}"),
    (1, "     1→" + _PEM.replace("\n", "\n     2→")),
    (1, '{"args": ["--token", "{word}", "-v"]}'),
    (1, '[{"name": "DB_PASSWORD", "value": "{word}"}]'),
    (3, "a={github}\nb={github}\npassword={word}"),
]  # fmt: skip

# Told by their structure.
VALUES: list[tuple[int, Any]] = [
    (1, {"password": "{phrase}", "user": "bob"}),
    (1, {"db": {"clientSecret": "{symbols}"}}),
    (2, {"api_keys": ["{word}", "{aws_secret}"]}),
    (1, {"env": [{"name": "DB_PASSWORD", "value": "{word}"}, {"name": "HOST", "value": "db"}]}),
    (1, {"args": ["--token", "{word}", "-v"]}),
    (1, {"headers": {"Authorization": "Bearer {aws_secret}"}}),
    (1, {"{github}": {"scopes": ["repo"]}}),
    (1, [["deep", [{"text": "it is {npm}"}]]]),
    (1, {"stdout": '{"access_token": "{aws_secret}", "expires_in": 3600}'}),
]  # fmt: skip

HARMLESS: list[Any] = [
    f"commit {HEX[:40]}\nindex {HEX[:7]}..{HEX[7:14]} 100644",
    f"sha256:{HEX[:64]}",
    "session 8c1c0a1e-6f5d-4a55-9f0b-2a4f7f0f3b11 of ses_0123456789ab run_0123456789ab",
    {"session_id": "ses_0123456789ab", "tool_use_id": "toolu_01A09q90qw90lq917835lq9", "id": f"msg_{ALNUM[:24]}"},
    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo" + ALNUM * 40}},
    {"type": "thinking", "thinking": "Let me see.", "signature": ALNUM * 5},
    {"usage": {"input_tokens": 12, "output_tokens": 34, "cache_read_input_tokens": 5}, "max_tokens": 4096},
    "token = parser.next_token()\nif token == expected_token: return token",
    "def login(user: str, password: str, *, secret: str | None = None) -> Token:",
    "self.password = password\npassword = get_password()\nsecret = os.environ['SECRET']",
    "const apiKey = process.env.API_KEY; const token = cookies?.token;",
    '<input type="password" name="password" placeholder="Password">',
    'password: {"type": "string"}, "required": ["password"]',
    {"properties": {"password": {"type": "string", "description": "The password"}}, "required": ["password"]},
    "DB_PASSWORD=$DB_PASSWORD SECRET=${SECRET} TOKEN=<your token> PASSWORD=%(password)s",
    "PASSWORD=********",
    "postgres://user:password@localhost/db and https://user:$PASS@host/",
    "mkdir -p build/x && docker run -u 1000:1000 image && cp -pR a b",
    "The password is required. Pass --password or set a token. Bearer tokens are refused.",
    "next_page_token=CAUQAAabcdef1234567890 pageToken: 'abcdef1234567890abcdef'",
    "cancellationToken: CancellationToken",
    "primary_key=True, foreign_key: 'orders.id', key=lambda row: row.id, sort_key=name",
    "@shop/sk-circle-fade-dot-large-animation, sk-learn, task-based-risk-assessment",
    "git@github.com:acme/shop.git ssh://git@github.com/acme/shop https://github.com/acme/shop",
    "[masked: GitHub token 3f9a1c2e] password=[masked: password 3f9a1c2e]",
    "-----BEGIN CERTIFICATE-----\nMIIDdzCCAl+gAwIBAgIEAgAAuTANBgkqhkiG9w0BAQUFADBa\n-----END CERTIFICATE-----",
    _made('if text.startswith("-----BEGIN ', 'PRIVATE KEY-----"): return'),
    "eos_token: </s>, pad_token=[PAD], csrf_token missing",
    "The machine login and password pages: machine learning, default password policy, login or password reset.",
    "gl-row sk-toggle shpt_x pat-answer key-value SKILLS AKIAbc dapi_client hf_hub fc-list re_compile vcr_cassettes",
    f"shp_{HEX[:32]} cio-{HEX[:32]} {HEX[:32]}-used {HEX[:8]}-{HEX[:4]}-{HEX[:4]}",
    "12:30:45 10:AA:BB 2001:db8::1 a:b@c",
]  # fmt: skip


def filled(value: Any) -> Any:
    """Return a value of the corpus with its secrets in place."""
    if isinstance(value, str):
        for name, secret in SECRETS.items():
            value = value.replace(f"{{{name}}}", secret)
        return value
    if isinstance(value, dict):
        return {filled(name): filled(item) for name, item in value.items()}
    return [filled(item) for item in value] if isinstance(value, list) else value


def secrets_in(value: Any) -> list[str]:
    """Return the secrets that a value of the corpus names."""
    return [secret for name, secret in SECRETS.items() if f"{{{name}}}" in str(value)]
