"""The services that messages can be handed to, and what their addresses look like.

Only these: all speak HTTP, none acts on the machine that Signalbox runs on. A name is an Apprise schema; where one
begins addresses of hosts that people run themselves, what it leads to is checked when it is connected to.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AppriseService:
    """A service that many use: its schemas, how its address is written, and where its parts are found."""

    name: str
    schemas: tuple[str, ...]
    address: str
    steps: str


COMMON = (
    AppriseService(
        "Slack",
        ("slack",),
        "https://hooks.slack.com/services/T…/B…/…",
        "Create an app in Slack, turn on Incoming Webhooks, add one to a channel and copy its address.",
    ),
    AppriseService(
        "Microsoft Teams",
        ("workflows", "workflow"),
        "https://….logic.azure.com/workflows/…/triggers/manual/paths/invoke?…&sig=…",
        "In the channel choose Workflows, then “Post to a channel when a webhook request is received”, and copy "
        "its address.",
    ),
    AppriseService(
        "Discord",
        ("discord",),
        "https://discord.com/api/webhooks/…/…",
        "In the channel's settings choose Integrations, then Webhooks, make one and copy its address.",
    ),
    AppriseService(
        "Google Chat",
        ("gchat",),
        "https://chat.googleapis.com/v1/spaces/…/messages?key=…&token=…",
        "In the space's menu choose Apps & integrations, then Webhooks, add one and copy its address.",
    ),
    AppriseService(
        "Telegram",
        ("tgram",),
        "tgram://BOT-TOKEN/CHAT-ID",
        "Talk to @BotFather to make a bot and get its token. Write to the bot, then find your chat's id.",
    ),
    AppriseService(
        "ntfy",
        ("ntfy", "ntfys"),
        "ntfy://TOPIC or ntfys://USER:PASSWORD@ntfy.example.org/TOPIC",
        "Choose a topic that nobody can guess, and subscribe to it in the ntfy app. Use ntfy.sh or "
        "your own server.",
    ),
    AppriseService(
        "Pushover",
        ("pover",),
        "pover://USER-KEY@APP-TOKEN",
        "The user key is on your Pushover page. Create an application there for its token.",
    ),
    AppriseService(
        "Gotify",
        ("gotify", "gotifys"),
        "gotifys://gotify.example.org/APP-TOKEN",
        "In Gotify choose Apps, create one and copy its token.",
    ),
    AppriseService(
        "Matrix",
        ("matrix", "matrixs"),
        "matrixs://USER:PASSWORD@matrix.example.org/#ROOM",
        "A user of the home server who has joined the room.",
    ),
    AppriseService(
        "Mattermost",
        ("mmost", "mmosts"),
        "mmosts://chat.example.org/WEBHOOK-KEY",
        "In Integrations make an incoming webhook. The key is the last part of its address.",
    ),
    AppriseService(
        "Signal",
        ("signal", "signals"),
        "signals://signal.example.org/+15550100/+15550123",
        "Needs signal-cli-rest-api on your own host. Enter the sender's number, then yours.",
    ),
    AppriseService(
        "PagerDuty",
        ("pagerduty",),
        "pagerduty://INTEGRATION-KEY@API-KEY",
        "Add an Events integration to a service, and an API key.",
    ),
)

# Further schemas that Apprise knows.
OTHERS = """
    46elks elks eight00com ses sns atalk apprise apprises bark barks betterstack bsky bluesky brevo bulksms
    bulkvs cm chanify wxteams webex clicksend clickatell d7sms dapnet dingtalk dot evolution evolutions exotel
    feishu firehydrant flock flowtriq flowtriqs fluxer fluxers freemobile github goalert goalerts gorush
    gorushs groundmail groupme guilded gupshup hassio hassios humhub humhubs ifttt infobip jira join json
    jsons kakaotalk kakao kaleyra klr kavenegar kook burstsms kudosity kumulos lametric lametrics lark line
    msg91 mailersend mailgun mastodon mastodons toot toots msgbird misskey misskeys mobilemessage mobilemsg
    ncloud nclouds nctalk nctalks notica noticas notifiarr notifico notificos notifyre octopush onebot onebots
    onesignal opsgenie pagertree parsep parseps pinglet pinglets pingram plivo postmark prowl pushdeer
    pushdeers pushme pushward pbul pushed pjet pjets pushplus wecom psafer psafers pushy qq reddit resend
    revolt ringc rocket rockets ryver signl4 smseagle smseagles smsmgr smsmanager smsc smstunnel smtp2go
    sendgrid sendpulse schan serwersms signalgrid spush simplepush sinch sfr sparkpost spike splunk victorops
    spugpush squadcast stackfield strmlabs synology synologys push telesign telnyx threema trigv trigvs twilio
    twist x twitter tweet viber voipms vonage nexmo wpush wechat wecombot whapi whatsapp wxpusher xml xmls
    form forms youlmk zalo cliq zcliq zohocliq zoom zulip httpsms ilert incidentio seven xmatters
"""

SCHEMAS: tuple[str, ...] = (*(schema for one in COMMON for schema in one.schemas), *OTHERS.split())


def example_service_address(schema: str) -> str:
    """Return what an address of this schema looks like; nothing where Signalbox does not know."""
    return next((service.address for service in COMMON if schema in service.schemas), "")
