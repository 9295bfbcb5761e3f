// What works while no page is open: notifications, the icon's number, and the last list for times without a network.
//
// The server puts one line before this: `const RELEASE = {version, offline, shell, icon, badge}`, so that every release
// is another script, which browsers fetch and start by themselves. No page of Signalbox's is ever kept: what is asked
// for comes from the server, or it is the one page that says that the server cannot be reached.
const KEPT = "signalbox-kept"; // emptied at sign-out (device.js): the last list, and the proof that a Deny needs
const LIST = "/ui/push/waiting/";
const PROOF = "/ui/push/proof";
const SHELL = `signalbox-shell-${RELEASE.version}`; // the offline page and what it is drawn with
const PATIENCE = 10_000; // milliseconds that a server has to answer; browsers end a worker that takes much longer

self.addEventListener("install", (event) => {
  self.skipWaiting();
  const files = RELEASE.shell.map((url) => new Request(url, { cache: "reload", credentials: "omit" }));
  event.waitUntil(caches.open(SHELL).then((shell) => shell.addAll(files)));
});

self.addEventListener("activate", (event) => event.waitUntil(takeOver()));

async function takeOver() {
  const names = await caches.keys();
  const old = names.filter((name) => name.startsWith("signalbox-shell-") && name !== SHELL);
  await Promise.all(old.map((name) => caches.delete(name)));
  await self.registration.navigationPreload?.enable();
  await self.clients.claim();
  if (!old.length) return;
  for (const page of await windows()) page.postMessage({ kind: "updated", version: RELEASE.version });
}

const windows = () => self.clients.matchAll({ type: "window", includeUncontrolled: true });

self.addEventListener("fetch", (event) => {
  const { request } = event;
  const { origin, pathname } = new URL(request.url);
  if (request.method !== "GET" || origin !== self.location.origin) return;
  if (request.mode === "navigate") event.respondWith(page(event).catch(() => fromShell(RELEASE.offline)));
  else if (RELEASE.shell.includes(pathname)) event.respondWith(fetch(request).catch(() => fromShell(pathname)));
});

// What the browser has asked for itself, where it does so: only that says from which site a person came.
const page = async (event) => (await event.preloadResponse) ?? fetch(event.request);

async function fromShell(url) {
  return (await (await caches.open(SHELL)).match(url)) ?? Response.error();
}

// Messages. Every one is shown: browsers take the right to push from whoever stays silent.

self.addEventListener("push", (event) => event.waitUntil(hear(event.data)));

async function hear(data) {
  const told = read(data);
  await show(told);
  await count(told.waiting);
  const list = await look();
  if (list === SIGNED_OUT) await show(SIGN_IN);
  else if (told.kind === "waiting" && told.id && list?.closed(told.id)) await show({ ...told, ...OVER });
}

const SIGN_IN = {
  kind: "signed-out",
  title: "Sign in to see waiting requests",
  body: "You are signed out on this device.",
  url: "/ui/approvals/",
};
// Of a push that came late. Who closed the request is told in its place, where that is still to come.
const OVER = { kind: "closed", judged: undefined, beside: "It is no longer waiting." };

function read(data) {
  try {
    return data.json();
  } catch {
    return { kind: "waiting", title: "Signalbox", body: "A request is waiting.", url: "/ui/approvals/" };
  }
}

const QUIET = new Set(["closed", "denying", SIGN_IN.kind]); // what rang already, or was just pressed

// Of a question its choices, where the screen has room for all of them: a part of them would be no fair question.
function offered({ choices }) {
  if (!choices) return [{ action: "deny", title: "Deny" }];
  if (choices.length > Notification.maxActions) return [];
  return choices.map((title, place) => ({ action: `${ANSWER}${place}`, title }));
}

const ANSWER = "answer-";

async function show(told) {
  const waits = told.kind === "waiting";
  const tag = told.id ?? `signalbox-${told.kind}`;
  const seen = (await windows()).some((page) => page.focused);
  const actions = waits && told.judged ? offered(told) : [];
  const options = {
    body: [told.body, told.beside].filter(Boolean).join("\n"),
    tag,
    actions,
    renotify: waits && !seen,
    silent: QUIET.has(told.kind) || seen,
    timestamp: Date.parse(told.at) || Date.now(),
    icon: RELEASE.icon,
    badge: RELEASE.badge,
    data: { ...told, shown: Date.now() },
  };
  await inTurn(() => self.registration.showNotification(told.title, options));
  if (seen && told.id) await takeAway(({ id }) => id === told.id); // whoever looks at Signalbox sees it there
}

// Chromium forgets a notification that it is just showing where it is asked for those on the screen: it stays there, but
// a press on it does nothing. So whoever shows and whoever asks take turns.
let turnOfScreen = Promise.resolve();

function inTurn(work) {
  const done = turnOfScreen.then(work);
  turnOfScreen = done.catch(() => {});
  return done;
}

// Closes the notifications whose data `fits`.
function takeAway(fits) {
  return inTurn(async () => {
    for (const note of await self.registration.getNotifications()) if (fits(note.data ?? {})) note.close();
  });
}

async function count(number) {
  if (!Number.isInteger(number) || !navigator.setAppBadge) return;
  await (number ? navigator.setAppBadge(number) : navigator.clearAppBadge()).catch(() => {});
}

// The list as it is now: kept for times without a network; what no longer waits is taken from the screen.

self.addEventListener("message", (event) => {
  if (event.data?.kind === "look") event.waitUntil(look());
});

const SIGNED_OUT = { csrf: "" };
let turns = 0;
let newest = 0; // whose answer counts: an older one may arrive after it

// Returns the list: its `csrf`, and `closed(id)` says whether a request no longer waits. SIGNED_OUT where nobody who may
// decide is signed in here; null where the server was not reached: what is kept stays, and is shown as old.
async function look() {
  const asked = Date.now();
  const turn = ++turns;
  const kept = await caches.has(KEPT);
  const answer = await ask();
  if (answer === SIGNED_OUT && turn > newest) {
    newest = turn;
    await forget();
  }
  if (answer === null || answer === SIGNED_OUT) return answer;
  if (kept && !(await caches.has(KEPT))) return null; // signed out meanwhile
  const { csrf, ...list } = answer;
  const waiting = new Set(list.requests.map((one) => one.id));
  const closed = (id) => waiting.size >= list.count && !waiting.has(id); // a part of the list closes nothing
  if (turn < newest) return { csrf, closed };
  newest = turn;
  await (await caches.open(KEPT)).put(LIST, new Response(JSON.stringify(list)));
  await count(list.count);
  const over = ({ kind, id, shown }) => kind === "waiting" && id && shown < asked && closed(id); // later ones may be newer
  await takeAway((data) => data.kind === SIGN_IN.kind || over(data));
  return { csrf, closed };
}

// Only what says that nobody who may decide is signed in counts as that: the way to the sign-in page, or a refusal.
// A server in trouble, or one that is asked too much, says nothing of the kind.
async function ask() {
  const options = { redirect: "manual", headers: { Accept: "application/json" }, signal: AbortSignal.timeout(PATIENCE) };
  const answer = await fetch(LIST, options).catch(() => null);
  if (answer === null) return null;
  if (answer.type === "opaqueredirect" || answer.status === 401 || answer.status === 403) return SIGNED_OUT;
  return answer.ok ? answer.json().catch(() => null) : null;
}

// What says nothing of a request stays, such as that one should sign in: nothing tells it again.
async function forget() {
  await caches.delete(KEPT);
  await count(0);
  await takeAway(({ kind, id }) => id || (kind !== SIGN_IN.kind && kind !== "problem"));
}

// A press: the card, a Deny of exactly what was shown, or the answer to exactly that question. Approving takes the card.

self.addEventListener("notificationclick", (event) => {
  const { notification, action } = event;
  if (action === "deny") return event.waitUntil(deny(notification.data)); // which shows others in its place
  if (action.startsWith(ANSWER)) return event.waitUntil(answer(notification.data, Number(action.slice(ANSWER.length))));
  notification.close();
  event.waitUntil(open(notification.data?.url ?? "/ui/approvals/"));
});

async function open(path) {
  const url = new URL(path, self.location.origin).href;
  const pages = await windows();
  const there = pages.find((page) => page.url === url) ?? pages.find((page) => new URL(page.url).pathname === "/ui/approvals/");
  if (!there) return self.clients.openWindow(url);
  await there.focus().catch(() => {}); // a browser may refuse to bring a window to the front
  return there.url === url ? there : there.navigate(url);
}

const SENT_AWAY = "You are signed out on this device, or you may no longer decide. Open the request to decide.";
const DENYING = {
  url: "/ui/push/deny/",
  begins: (told) => `Denying: ${told.title}`,
  done: (told) => [`Denied: ${told.title}`, "You denied it."],
  failed: "Nothing was denied",
  unknown: "No answer to your denial",
};
const ANSWERING = {
  url: "/ui/push/answer/",
  begins: (told) => `Answering: ${told.title}`,
  done: (told, choice) => [`Answered: ${told.title}`, `You answered: ${told.choices[choice]}`],
  failed: "Nothing was answered",
  unknown: "No reply to your answer",
};

const deny = (told) => decide(told, DENYING);
const answer = (told, choice) => decide(told, ANSWERING, choice);

async function decide(told, verb, choice) {
  const tell = (kind, title, beside) => show({ ...told, judged: undefined, at: undefined, kind, title, beside });
  await tell("denying", verb.begins(told), "Signalbox has not answered yet."); // stays where the worker is ended
  const problem = await decided(told, verb, choice).catch(() => null);
  if (problem === null) return tell("problem", verb.unknown, "It may have arrived. Open the request to check.");
  if (problem === SIGNED_OUT) {
    await takeAway(({ id }) => id === told.id);
    return show({ kind: "problem", title: verb.failed, body: SENT_AWAY, url: told.url });
  }
  if (problem) return tell("problem", verb.failed, `${problem} Open the request to decide.`);
  await tell("closed", ...verb.done(told, choice));
  await look();
}

// Returns why it was not decided, or SIGNED_OUT, "" where it was; throws where that is not known.
async function decided({ id, judged }, verb, choice) {
  const list = await look();
  if (list === null) return "Signalbox cannot be reached.";
  if (list === SIGNED_OUT) return SIGNED_OUT;
  const proof = await caches.match(PROOF, { cacheName: KEPT }).then((kept) => kept?.text() ?? "");
  const headers = { "X-CSRFToken": list.csrf, "X-Signalbox-Proof": proof, "HX-Request": "true" };
  const body = new URLSearchParams(choice === undefined ? { id, judged } : { id, judged, choice });
  const signal = AbortSignal.timeout(PATIENCE);
  const reply = await fetch(verb.url, { method: "POST", headers, body, redirect: "manual", signal });
  if (reply.status === 204) return "";
  return (await reply.json().catch(() => ({}))).detail ?? `Signalbox answered ${reply.status}.`;
}

// A browser may give a device another address by itself; where that cannot be told, its person is.

self.addEventListener("pushsubscriptionchange", (event) => event.waitUntil(move(event)));

async function move({ oldSubscription, newSubscription }) {
  const now = newSubscription ?? (await self.registration.pushManager.subscribe(oldSubscription?.options).catch(() => null));
  if (now && (await moved(now, oldSubscription?.endpoint ?? "").catch(() => false))) return;
  const words = "Open Signalbox, go to Approvals, Notifications, and switch them on again.";
  await show({ kind: "problem", title: "This device is no longer notified", body: words, url: "/ui/approvals/notifications/" });
}

async function moved(subscription, replaces) {
  const list = await look();
  if (!list?.csrf) return false;
  const proof = await caches.match(PROOF, { cacheName: KEPT }).then((kept) => kept?.text() ?? "");
  const { endpoint, keys } = subscription.toJSON();
  const headers = { "X-CSRFToken": list.csrf, "X-Signalbox-Proof": proof, "HX-Request": "true" };
  const body = new URLSearchParams({ endpoint, ...keys, device: "", replaces });
  const signal = AbortSignal.timeout(PATIENCE);
  return (await fetch("/ui/push/subscribe/", { method: "POST", headers, body, signal })).ok;
}
