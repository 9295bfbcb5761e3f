"""Formats of known vendors' keys, which are recognisable anywhere: as the vendors' documents describe them.

What a key begins with finds it, in one reading for all of them; what must follow says whether it is one. Both are
written down once, here, and what looks for secrets is made from it. tests/secrets/test_every_shape.py makes
thousands of keys of each kind and looks for them.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class VendorKeyPattern(NamedTuple):
    """One form of key: what people call it (letters, digits and spaces), its beginning, and what follows.

    Of what follows, the first eight characters are of `TAIL`. `inside`: it is one in the middle of a word, too.
    """

    kind: str
    begins: str
    follows: str
    inside: bool = False


TAIL = "[A-Za-z0-9_.+/=,~-]"
_ALNUM, _ANY, _HEX = "[A-Za-z0-9]", "[A-Za-z0-9_-]", "[a-f0-9]"
_UUID = rf"{_HEX}{{8}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{12}}"

MODELS = (
    VendorKeyPattern("Anthropic key", "sk-ant-", _ANY + "{20,}", inside=True),
    VendorKeyPattern("OpenAI key", "sk-(?:proj|svcacct|admin|None)-", _ANY + "{20,}", inside=True),
    VendorKeyPattern("OpenRouter key", "sk-or-v1-", _ANY + "{20,}", inside=True),
    VendorKeyPattern("Langfuse key", "sk-lf-", _ANY + "{20,}"),
    VendorKeyPattern("OpenAI key", "sk-", _ALNUM + "{32,}"),
    VendorKeyPattern("Groq key", "gsk_", _ALNUM + "{40,}"),
    VendorKeyPattern("Hugging Face token", "hf_|api_org_", _ALNUM + "{34}"),
    VendorKeyPattern("xAI key", "xai-", _ALNUM + "{70,}"),
    VendorKeyPattern("Perplexity key", "pplx-", _ALNUM + "{40,}"),
    VendorKeyPattern("Replicate token", "r8_", _ALNUM + r"{37,40}\b"),
    VendorKeyPattern("LangSmith key", "lsv2_(?:pt|sk)_", _HEX + "{32}_" + _HEX + "{10}"),
    VendorKeyPattern("Pinecone key", "pcsk_", "[A-Za-z0-9_]{50,}"),
    VendorKeyPattern("Cerebras key", "csk-", "[a-z0-9]{40,}"),
    VendorKeyPattern("NVIDIA key", "nvapi-", _ANY + "{60,}"),
    VendorKeyPattern("Jina key", "jina_", _ANY + "{50,}"),
    VendorKeyPattern("Together key", "tgp_v1_", _ANY + "{40,}"),
    VendorKeyPattern("ElevenLabs key", "sk_", _HEX + r"{48}\b"),
    VendorKeyPattern("Weights and Biases key", "wandb_v1_", _ANY + "{50,}"),
    VendorKeyPattern("RunPod key", "rpa_", "[A-Z0-9]{40,}" + _ALNUM + "{0,8}"),
    VendorKeyPattern("E2B key", "e2b_", _HEX + r"{40}\b"),
    VendorKeyPattern("Firecrawl key", "fc-", _HEX + r"{32}\b"),
    VendorKeyPattern("Tavily key", "tvly-(?:dev-|prod-)?", _ALNUM + "{28,}"),
)

CODE = (
    VendorKeyPattern("GitHub token", "gh[pousr]_", _ALNUM + "{36,}", inside=True),
    VendorKeyPattern("GitHub token", "github_pat_", "[A-Za-z0-9_]{22,}", inside=True),
    VendorKeyPattern(
        "GitLab token",
        "gl(?:pat|dt|rtr?|cbt|ptt|ft|imt|agent|oas|soat|ffct|wt)-",
        "[A-Za-z0-9_.-]{20,}",
        inside=True,
    ),
    VendorKeyPattern("Bitbucket token", "ATBB", _ALNUM + "{24,}"),
    VendorKeyPattern("Atlassian token", "AT[AC]TT3", "[A-Za-z0-9_=-]{50,}", inside=True),
    VendorKeyPattern("npm token", "npm_", _ALNUM + "{36}", inside=True),
    VendorKeyPattern("PyPI token", "pypi-Ag", _ANY + "{50,}", inside=True),
    VendorKeyPattern("RubyGems key", "rubygems_", _HEX + "{48}"),
    VendorKeyPattern("Cargo token", "cio", _ALNUM + r"{32}\b"),
    VendorKeyPattern("NuGet key", "oy2", r"[a-z0-9]{43}\b"),
    VendorKeyPattern("Clojars token", "CLOJARS_", _HEX + "{60}"),
    VendorKeyPattern("Docker token", "dckr_(?:pat|oat)_", _ANY + "{27,}"),
    VendorKeyPattern("JFrog key", "AKCp", _ALNUM + "{69,}"),
    VendorKeyPattern("JFrog key", "cmVmd", _ALNUM + r"{59}\b"),
    VendorKeyPattern("SonarQube token", "sq[upa]_", _HEX + r"{40}\b"),
    VendorKeyPattern("CircleCI token", "CCIP(?:AT|RJ)_", _ALNUM + "{8,40}_" + _HEX + "{40}"),
    VendorKeyPattern("Buildkite token", "bk(?:ua|at|ct)_", _HEX + "{40}"),
    VendorKeyPattern("Sourcegraph token", "sgp_(?:[a-f0-9]{16}_|local_)?", _HEX + "{40}"),
    VendorKeyPattern("Snyk token", r"snyk_(?:uat|sat)\.", _HEX + r"{8}\.[A-Za-z0-9_.-]{30,}"),
    VendorKeyPattern("Postman key", "PMAK-", "[a-fA-F0-9]{24}-[a-fA-F0-9]{34}"),
    VendorKeyPattern("LaunchDarkly key", "(?:sdk|api|mob)-", _UUID),
    VendorKeyPattern("Prefect key", "pn[ub]_", _ALNUM + r"{36}\b"),
)

CLOUDS = (
    VendorKeyPattern("AWS access key", "AKIA|ASIA|ABIA|ACCA", r"[A-Z0-9]{16}\b"),
    VendorKeyPattern("Google key", "AIza", _ANY + "{35}", inside=True),
    VendorKeyPattern("Google key", r"ya29\.", "[A-Za-z0-9_.-]{20,}", inside=True),
    VendorKeyPattern("Google key", "GOCSPX-", _ANY + "{28}", inside=True),
    VendorKeyPattern("Google refresh token", "1//0", _ANY + "{40,}"),
    VendorKeyPattern("Alibaba access key", "LTAI", _ALNUM + r"{17,21}\b"),
    VendorKeyPattern("Tencent access key", "AKID", _ALNUM + r"{32}\b"),
    VendorKeyPattern("Yandex key", "AQVN", _ANY + "{35,38}"),
    VendorKeyPattern("DigitalOcean token", "do[opr]_v1_", _HEX + "{64}", inside=True),
    VendorKeyPattern("Cloudflare token", "cf(?:k|ut|at)_", _ALNUM + "{40,}"),
    VendorKeyPattern("Cloudflare token", r"v1\.0-", _HEX + "{24}-" + _HEX + "{146}"),
    VendorKeyPattern("Fly token", "fo1_", _ANY + "{43}"),
    VendorKeyPattern("Fly token", "fm[12][ar]?_", "[A-Za-z0-9+/=,_-]{80,}"),
    VendorKeyPattern("Vercel token", "vc[piark]_", _ALNUM + "{24,}"),
    VendorKeyPattern("Vercel token", "vercel_blob_rw_", _ALNUM + "{8,40}_" + _ALNUM + "{20,}"),
    VendorKeyPattern("Netlify token", "nf[pcoub]_", _ALNUM + "{36,}"),
    VendorKeyPattern("Heroku key", "HRKU-", _ANY + "{36,}"),
    VendorKeyPattern("Render key", "rnd_", _ALNUM + "{28,}"),
    VendorKeyPattern("Scaleway key", "SCW", r"[A-Z0-9]{17}\b"),
    VendorKeyPattern("Tailscale key", "tskey-[a-z]{2,20}-", "[A-Za-z0-9-]{20,}"),
    VendorKeyPattern("Supabase key", "sbp_(?:oauth_)?", _HEX + "{40}"),
    VendorKeyPattern("Supabase key", "sb_secret_", _ANY + "{20,}"),
    VendorKeyPattern("PlanetScale token", "pscale_(?:tkn|oauth|pw)_", "[A-Za-z0-9=._-]{32,}"),
    VendorKeyPattern("Neon key", "napi_", "[a-z0-9]{60,}"),
    VendorKeyPattern("Databricks token", "dapi|dose|dkea", _HEX + r"{32}(?:-[0-9])?\b"),
    VendorKeyPattern("Pulumi token", "pul-", _HEX + r"{40}\b"),
    VendorKeyPattern("Infracost key", "ico-", _ALNUM + r"{32}\b"),
    VendorKeyPattern("New Relic key", "NRAK-", "[A-Z0-9]{27}", inside=True),
    VendorKeyPattern("New Relic key", "NRAA-", _HEX + "{27}", inside=True),
    VendorKeyPattern("New Relic key", "NRII-", _ANY + "{32}", inside=True),
    VendorKeyPattern("New Relic key", "NRJS-", _HEX + "{19}", inside=True),
    VendorKeyPattern("Grafana token", "glsa_", _ALNUM + "{32}_[A-Fa-f0-9]{8}"),
    VendorKeyPattern("Grafana token", "glc_", "[A-Za-z0-9+/]{32,}={0,2}"),
    VendorKeyPattern("Sentry token", "sntrys_eyJ", "[A-Za-z0-9+/=_-]{60,}"),
    VendorKeyPattern("Sentry token", "sntryu_", _HEX + "{64}"),
    VendorKeyPattern("Dynatrace token", r"dt0[a-z][0-9]{2}\.", r"[A-Z0-9]{24}\.[A-Z0-9]{64}"),
    VendorKeyPattern("Honeycomb key", "hca[il]k_", "[a-z0-9]{58}"),
)

SERVICES = (
    VendorKeyPattern("Slack token", r"xox[abeoprs](?:\.xox[a-z])?-", "[A-Za-z0-9-]{20,}", inside=True),
    VendorKeyPattern("Slack token", "xapp-[0-9]-", "[A-Za-z0-9-]{30,}", inside=True),
    VendorKeyPattern("Twilio key", "SK", _HEX + r"{32}\b"),
    VendorKeyPattern("SendGrid key", r"SG\.", _ANY + r"{22}\." + _ANY + "{43}", inside=True),
    VendorKeyPattern("Mailgun key", "(?:pub)?key-", _HEX + r"{32}\b"),
    VendorKeyPattern("Brevo key", "x(?:key|smtp)sib-", _HEX + "{64}-" + _ALNUM + "{16}"),
    VendorKeyPattern("Resend key", "re_", _ALNUM + "{8}_" + _ALNUM + r"{24}\b"),
    VendorKeyPattern("MailerSend key", r"mlsn\.", _HEX + "{64}"),
    VendorKeyPattern("Stripe key", "[sr]k_(?:live|test)_", _ALNUM + "{16,}", inside=True),
    VendorKeyPattern("webhook secret", "whsec_", "[A-Za-z0-9+/=_-]{24,}", inside=True),
    VendorKeyPattern("Square token", "sq0(?:atp|csp|idp)-", _ANY + "{22,43}"),
    VendorKeyPattern("Square token", "EAAA", _ANY + "{60}(?![A-Za-z0-9_-])"),
    VendorKeyPattern("Facebook token", "EAA[A-Z]", _ALNUM + "{80,}"),
    VendorKeyPattern(
        "Braintree token", r"access_token\$(?:production|sandbox)\$[0-9a-z]{16}\$", _HEX + "{32}"
    ),
    VendorKeyPattern("Flutterwave key", "FLWSECK(?:_TEST)?-", _ALNUM + "{12,}(?:-X)?"),
    VendorKeyPattern("Plaid token", "access-(?:sandbox|development|production)-", _UUID),
    VendorKeyPattern("Shippo token", "shippo_(?:live|test)_", _HEX + "{40}"),
    VendorKeyPattern("EasyPost key", "EZ[AT]K", _ALNUM + "{54}"),
    VendorKeyPattern("Shopify token", "shp(?:at|ca|pa|ss|tka)_", "[a-fA-F0-9]{32}", inside=True),
    VendorKeyPattern("Linear key", "lin_(?:api|oauth)_", _ALNUM + "{32,}"),
    VendorKeyPattern("Notion token", "secret_", _ALNUM + r"{43}\b"),
    VendorKeyPattern("Notion token", "ntn_", _ALNUM + "{40,}"),
    VendorKeyPattern("Airtable token", "pat", _ALNUM + r"{14}\." + _HEX + "{64}"),
    VendorKeyPattern("ClickUp token", "pk_[0-9]{5,12}_", r"[A-Z0-9]{32}\b"),
    VendorKeyPattern("Trello token", "ATTA", _HEX + "{60,}"),
    VendorKeyPattern("Figma token", "fig[dou]r?h?_", _ANY + "{36,}"),
    VendorKeyPattern("Contentful token", "CFPAT-", _ANY + "{43}"),
    VendorKeyPattern("HubSpot token", "pat-[a-z]{2}[0-9]-", _UUID),
    VendorKeyPattern("Typeform token", "tfp_", "[A-Za-z0-9_.=-]{44,}"),
    VendorKeyPattern("ReadMe key", "rdme_", "[a-z0-9]{70}"),
    VendorKeyPattern("Mapbox token", r"sk\.eyJ", _ANY + r"{20,400}\." + _ANY + "{20,}"),
    VendorKeyPattern("Dropbox token", r"sl\.(?:u\.|B)?", _ANY + "{100,}"),
    VendorKeyPattern("Frame token", "fio-u-", "[A-Za-z0-9_=-]{64}"),
    VendorKeyPattern("PostHog key", "ph[xs]_", _ALNUM + "{40,}"),
    VendorKeyPattern("Adobe secret", "p8e-", _ANY + "{32}(?![A-Za-z0-9_-])"),
)

VAULTS = (
    VendorKeyPattern("Vault token", r"hv[sbr]\.", _ANY + "{24,}", inside=True),
    VendorKeyPattern(
        "Doppler token", r"dp\.(?:pt|st|ct|sa|scim|audit)\.(?:[a-z0-9_-]{2,35}\.)?", _ALNUM + "{40,44}"
    ),
    VendorKeyPattern("1Password token", "ops_eyJ", "[A-Za-z0-9+/=_-]{80,}"),
    VendorKeyPattern(
        "1Password key", "A3-[A-Z0-9]{6}-", r"(?:[A-Z0-9]{11}|[A-Z0-9]{6}-[A-Z0-9]{5})(?:-[A-Z0-9]{5}){3}\b"
    ),
    VendorKeyPattern("age key", "AGE-SECRET-KEY-(?:PQ-)?1", "[0-9A-Z]{58,}", inside=True),
    VendorKeyPattern("Signalbox key", "sbx_", _ANY + "{43}", inside=True),
)

KEYS = (*MODELS, *CODE, *CLOUDS, *SERVICES, *VAULTS)

# A word begins here; in JSON within a text, the character before it may be the letter of an escape.
_BEGINNING = r"(?:(?<![A-Za-z0-9_])|(?<=\\[nrt]))"
# All keys' beginnings, with the first that must follow: so short that random text hardly has one.
BEGINNINGS = rf"(?:{'|'.join(dict.fromkeys(key.begins for key in KEYS))}){TAIL}{{8}}"
KEY = re.compile(
    "|".join(f"({'' if key.inside else _BEGINNING}(?:{key.begins}){key.follows})" for key in KEYS).encode()
)
LONGEST = 4_000  # bytes of a key that are looked at to know it
