"""The keys of known makers, which give themselves away wherever they stand: as the makers' documents describe them.

What a key begins with finds it, in one reading for all of them; what must follow says whether it is one. Both are
written down once, here, and what looks for secrets is made from it. tests/secrets/test_every_shape.py makes
thousands of keys of each kind and looks for them.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Key(NamedTuple):
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
    Key("Anthropic key", "sk-ant-", _ANY + "{20,}", inside=True),
    Key("OpenAI key", "sk-(?:proj|svcacct|admin|None)-", _ANY + "{20,}", inside=True),
    Key("OpenRouter key", "sk-or-v1-", _ANY + "{20,}", inside=True),
    Key("Langfuse key", "sk-lf-", _ANY + "{20,}"),
    Key("OpenAI key", "sk-", _ALNUM + "{32,}"),
    Key("Groq key", "gsk_", _ALNUM + "{40,}"),
    Key("Hugging Face token", "hf_|api_org_", _ALNUM + "{34}"),
    Key("xAI key", "xai-", _ALNUM + "{70,}"),
    Key("Perplexity key", "pplx-", _ALNUM + "{40,}"),
    Key("Replicate token", "r8_", _ALNUM + r"{37,40}\b"),
    Key("LangSmith key", "lsv2_(?:pt|sk)_", _HEX + "{32}_" + _HEX + "{10}"),
    Key("Pinecone key", "pcsk_", "[A-Za-z0-9_]{50,}"),
    Key("Cerebras key", "csk-", "[a-z0-9]{40,}"),
    Key("NVIDIA key", "nvapi-", _ANY + "{60,}"),
    Key("Jina key", "jina_", _ANY + "{50,}"),
    Key("Together key", "tgp_v1_", _ANY + "{40,}"),
    Key("ElevenLabs key", "sk_", _HEX + r"{48}\b"),
    Key("Weights and Biases key", "wandb_v1_", _ANY + "{50,}"),
    Key("RunPod key", "rpa_", "[A-Z0-9]{40,}" + _ALNUM + "{0,8}"),
    Key("E2B key", "e2b_", _HEX + r"{40}\b"),
    Key("Firecrawl key", "fc-", _HEX + r"{32}\b"),
    Key("Tavily key", "tvly-(?:dev-|prod-)?", _ALNUM + "{28,}"),
)

CODE = (
    Key("GitHub token", "gh[pousr]_", _ALNUM + "{36,}", inside=True),
    Key("GitHub token", "github_pat_", "[A-Za-z0-9_]{22,}", inside=True),
    Key(
        "GitLab token",
        "gl(?:pat|dt|rtr?|cbt|ptt|ft|imt|agent|oas|soat|ffct|wt)-",
        "[A-Za-z0-9_.-]{20,}",
        inside=True,
    ),
    Key("Bitbucket token", "ATBB", _ALNUM + "{24,}"),
    Key("Atlassian token", "AT[AC]TT3", "[A-Za-z0-9_=-]{50,}", inside=True),
    Key("npm token", "npm_", _ALNUM + "{36}", inside=True),
    Key("PyPI token", "pypi-Ag", _ANY + "{50,}", inside=True),
    Key("RubyGems key", "rubygems_", _HEX + "{48}"),
    Key("Cargo token", "cio", _ALNUM + r"{32}\b"),
    Key("NuGet key", "oy2", r"[a-z0-9]{43}\b"),
    Key("Clojars token", "CLOJARS_", _HEX + "{60}"),
    Key("Docker token", "dckr_(?:pat|oat)_", _ANY + "{27,}"),
    Key("JFrog key", "AKCp", _ALNUM + "{69,}"),
    Key("JFrog key", "cmVmd", _ALNUM + r"{59}\b"),
    Key("SonarQube token", "sq[upa]_", _HEX + r"{40}\b"),
    Key("CircleCI token", "CCIP(?:AT|RJ)_", _ALNUM + "{8,40}_" + _HEX + "{40}"),
    Key("Buildkite token", "bk(?:ua|at|ct)_", _HEX + "{40}"),
    Key("Sourcegraph token", "sgp_(?:[a-f0-9]{16}_|local_)?", _HEX + "{40}"),
    Key("Snyk token", r"snyk_(?:uat|sat)\.", _HEX + r"{8}\.[A-Za-z0-9_.-]{30,}"),
    Key("Postman key", "PMAK-", "[a-fA-F0-9]{24}-[a-fA-F0-9]{34}"),
    Key("LaunchDarkly key", "(?:sdk|api|mob)-", _UUID),
    Key("Prefect key", "pn[ub]_", _ALNUM + r"{36}\b"),
)

CLOUDS = (
    Key("AWS access key", "AKIA|ASIA|ABIA|ACCA", r"[A-Z0-9]{16}\b"),
    Key("Google key", "AIza", _ANY + "{35}", inside=True),
    Key("Google key", r"ya29\.", "[A-Za-z0-9_.-]{20,}", inside=True),
    Key("Google key", "GOCSPX-", _ANY + "{28}", inside=True),
    Key("Google refresh token", "1//0", _ANY + "{40,}"),
    Key("Alibaba access key", "LTAI", _ALNUM + r"{17,21}\b"),
    Key("Tencent access key", "AKID", _ALNUM + r"{32}\b"),
    Key("Yandex key", "AQVN", _ANY + "{35,38}"),
    Key("DigitalOcean token", "do[opr]_v1_", _HEX + "{64}", inside=True),
    Key("Cloudflare token", "cf(?:k|ut|at)_", _ALNUM + "{40,}"),
    Key("Cloudflare token", r"v1\.0-", _HEX + "{24}-" + _HEX + "{146}"),
    Key("Fly token", "fo1_", _ANY + "{43}"),
    Key("Fly token", "fm[12][ar]?_", "[A-Za-z0-9+/=,_-]{80,}"),
    Key("Vercel token", "vc[piark]_", _ALNUM + "{24,}"),
    Key("Vercel token", "vercel_blob_rw_", _ALNUM + "{8,40}_" + _ALNUM + "{20,}"),
    Key("Netlify token", "nf[pcoub]_", _ALNUM + "{36,}"),
    Key("Heroku key", "HRKU-", _ANY + "{36,}"),
    Key("Render key", "rnd_", _ALNUM + "{28,}"),
    Key("Scaleway key", "SCW", r"[A-Z0-9]{17}\b"),
    Key("Tailscale key", "tskey-[a-z]{2,20}-", "[A-Za-z0-9-]{20,}"),
    Key("Supabase key", "sbp_(?:oauth_)?", _HEX + "{40}"),
    Key("Supabase key", "sb_secret_", _ANY + "{20,}"),
    Key("PlanetScale token", "pscale_(?:tkn|oauth|pw)_", "[A-Za-z0-9=._-]{32,}"),
    Key("Neon key", "napi_", "[a-z0-9]{60,}"),
    Key("Databricks token", "dapi|dose|dkea", _HEX + r"{32}(?:-[0-9])?\b"),
    Key("Pulumi token", "pul-", _HEX + r"{40}\b"),
    Key("Infracost key", "ico-", _ALNUM + r"{32}\b"),
    Key("New Relic key", "NRAK-", "[A-Z0-9]{27}", inside=True),
    Key("New Relic key", "NRAA-", _HEX + "{27}", inside=True),
    Key("New Relic key", "NRII-", _ANY + "{32}", inside=True),
    Key("New Relic key", "NRJS-", _HEX + "{19}", inside=True),
    Key("Grafana token", "glsa_", _ALNUM + "{32}_[A-Fa-f0-9]{8}"),
    Key("Grafana token", "glc_", "[A-Za-z0-9+/]{32,}={0,2}"),
    Key("Sentry token", "sntrys_eyJ", "[A-Za-z0-9+/=_-]{60,}"),
    Key("Sentry token", "sntryu_", _HEX + "{64}"),
    Key("Dynatrace token", r"dt0[a-z][0-9]{2}\.", r"[A-Z0-9]{24}\.[A-Z0-9]{64}"),
    Key("Honeycomb key", "hca[il]k_", "[a-z0-9]{58}"),
)

SERVICES = (
    Key("Slack token", r"xox[abeoprs](?:\.xox[a-z])?-", "[A-Za-z0-9-]{20,}", inside=True),
    Key("Slack token", "xapp-[0-9]-", "[A-Za-z0-9-]{30,}", inside=True),
    Key("Twilio key", "SK", _HEX + r"{32}\b"),
    Key("SendGrid key", r"SG\.", _ANY + r"{22}\." + _ANY + "{43}", inside=True),
    Key("Mailgun key", "(?:pub)?key-", _HEX + r"{32}\b"),
    Key("Brevo key", "x(?:key|smtp)sib-", _HEX + "{64}-" + _ALNUM + "{16}"),
    Key("Resend key", "re_", _ALNUM + "{8}_" + _ALNUM + r"{24}\b"),
    Key("MailerSend key", r"mlsn\.", _HEX + "{64}"),
    Key("Stripe key", "[sr]k_(?:live|test)_", _ALNUM + "{16,}", inside=True),
    Key("webhook secret", "whsec_", "[A-Za-z0-9+/=_-]{24,}", inside=True),
    Key("Square token", "sq0(?:atp|csp|idp)-", _ANY + "{22,43}"),
    Key("Square token", "EAAA", _ANY + "{60}(?![A-Za-z0-9_-])"),
    Key("Facebook token", "EAA[A-Z]", _ALNUM + "{80,}"),
    Key("Braintree token", r"access_token\$(?:production|sandbox)\$[0-9a-z]{16}\$", _HEX + "{32}"),
    Key("Flutterwave key", "FLWSECK(?:_TEST)?-", _ALNUM + "{12,}(?:-X)?"),
    Key("Plaid token", "access-(?:sandbox|development|production)-", _UUID),
    Key("Shippo token", "shippo_(?:live|test)_", _HEX + "{40}"),
    Key("EasyPost key", "EZ[AT]K", _ALNUM + "{54}"),
    Key("Shopify token", "shp(?:at|ca|pa|ss|tka)_", "[a-fA-F0-9]{32}", inside=True),
    Key("Linear key", "lin_(?:api|oauth)_", _ALNUM + "{32,}"),
    Key("Notion token", "secret_", _ALNUM + r"{43}\b"),
    Key("Notion token", "ntn_", _ALNUM + "{40,}"),
    Key("Airtable token", "pat", _ALNUM + r"{14}\." + _HEX + "{64}"),
    Key("ClickUp token", "pk_[0-9]{5,12}_", r"[A-Z0-9]{32}\b"),
    Key("Trello token", "ATTA", _HEX + "{60,}"),
    Key("Figma token", "fig[dou]r?h?_", _ANY + "{36,}"),
    Key("Contentful token", "CFPAT-", _ANY + "{43}"),
    Key("HubSpot token", "pat-[a-z]{2}[0-9]-", _UUID),
    Key("Typeform token", "tfp_", "[A-Za-z0-9_.=-]{44,}"),
    Key("ReadMe key", "rdme_", "[a-z0-9]{70}"),
    Key("Mapbox token", r"sk\.eyJ", _ANY + r"{20,400}\." + _ANY + "{20,}"),
    Key("Dropbox token", r"sl\.(?:u\.|B)?", _ANY + "{100,}"),
    Key("Frame token", "fio-u-", "[A-Za-z0-9_=-]{64}"),
    Key("PostHog key", "ph[xs]_", _ALNUM + "{40,}"),
    Key("Adobe secret", "p8e-", _ANY + "{32}(?![A-Za-z0-9_-])"),
)

VAULTS = (
    Key("Vault token", r"hv[sbr]\.", _ANY + "{24,}", inside=True),
    Key("Doppler token", r"dp\.(?:pt|st|ct|sa|scim|audit)\.(?:[a-z0-9_-]{2,35}\.)?", _ALNUM + "{40,44}"),
    Key("1Password token", "ops_eyJ", "[A-Za-z0-9+/=_-]{80,}"),
    Key("1Password key", "A3-[A-Z0-9]{6}-", r"(?:[A-Z0-9]{11}|[A-Z0-9]{6}-[A-Z0-9]{5})(?:-[A-Z0-9]{5}){3}\b"),
    Key("age key", "AGE-SECRET-KEY-(?:PQ-)?1", "[0-9A-Z]{58,}", inside=True),
    Key("Signalbox key", "sbx_", _ANY + "{43}", inside=True),
)

KEYS = (*MODELS, *CODE, *CLOUDS, *SERVICES, *VAULTS)

# A word begins here; in JSON within a text, what stands before it may be the letter of an escape.
_BEGINNING = r"(?:(?<![A-Za-z0-9_])|(?<=\\[nrt]))"
# All keys' beginnings, with the first that must follow: so short that random text hardly has one.
BEGINNINGS = rf"(?:{'|'.join(dict.fromkeys(key.begins for key in KEYS))}){TAIL}{{8}}"
KEY = re.compile(
    "|".join(f"({'' if key.inside else _BEGINNING}(?:{key.begins}){key.follows})" for key in KEYS).encode()
)
LONGEST = 4_000  # bytes of a key that are looked at to know it
