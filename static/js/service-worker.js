// What works while no page is open: notifications, the icon's number, and the last list for times without a network.
//
// The server puts one line before this: `const RELEASE = {version, offline, shell, icon, badge}`, so that every release
// is another script, which browsers fetch and start by themselves. No page of Signalbox's is ever kept: what is asked
// for comes from the server, or it is the one page that says that the server cannot be reached.
const KEPT = "signalbox-kept"; // emptied at sign-out (device.js): the last list, and the proof that a Deny needs
const LIST = "/ui/push/waiting/";
const PROOF = "/ui/push/proof";
const SHELL = `signalbox-shell-${RELEASE.version}`; // the offline page and what it is drawn with

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
  await look();
}

function read(data) {
  try {
    return data.json();
  } catch {
    return { kind: "waiting", title: "Signalbox", body: "A request waits.", url: "/ui/approvals/" };
  }
}

async function show(told) {
  const waits = told.kind === "waiting";
  const tag = told.id ?? `signalbox-${told.kind}`;
  const seen = (await windows()).some((page) => page.focused);
  const actions = waits && told.judged ? [{ action: "deny", title: "Deny" }] : [];
  await self.registration.showNotification(told.title, {
    body: [told.body, told.beside].filter(Boolean).join("\n"),
    tag,
    actions,
    renotify: waits && !seen,
    silent: told.kind === "closed" || seen,
    timestamp: Date.parse(told.at) || Date.now(),
    icon: RELEASE.icon,
    badge: RELEASE.badge,
    data: { ...told, shown: Date.now() },
  });
  // Whoever looks at Signalbox sees it there.
  if (seen && told.id) for (const note of await self.registration.getNotifications({ tag })) note.close();
}

async function count(number) {
  if (!Number.isInteger(number) || !navigator.setAppBadge) return;
  await (number ? navigator.setAppBadge(number) : navigator.clearAppBadge()).catch(() => {});
}

// The list as it is now: kept for times without a network; what no longer waits is taken from the screen.

self.addEventListener("message", (event) => {
  if (event.data?.kind === "look") event.waitUntil(look());
});

async function look() {
  const asked = Date.now();
  const kept = await caches.has(KEPT);
  const answer = await ask();
  if (answer === null) return null; // not reached: what is kept stays, and is shown as old
  if (answer === "signed out") return forget();
  if (kept && !(await caches.has(KEPT))) return null; // signed out meanwhile
  const { csrf, ...list } = answer;
  await (await caches.open(KEPT)).put(LIST, new Response(JSON.stringify(list)));
  await count(list.count);
  const waiting = new Set(list.requests.map((one) => one.id));
  if (waiting.size < list.count) return csrf; // a part of the list closes nothing
  for (const note of await self.registration.getNotifications()) {
    const { kind, id, shown } = note.data ?? {};
    if (kind === "waiting" && id && shown < asked && !waiting.has(id)) note.close(); // what came meanwhile may be newer
  }
  return csrf;
}

async function ask() {
  const answer = await fetch(LIST, { redirect: "manual", headers: { Accept: "application/json" } }).catch(() => null);
  if (answer === null || answer.status >= 500) return null;
  return answer.ok ? answer.json().catch(() => null) : "signed out";
}

async function forget() {
  await caches.delete(KEPT);
  await count(0);
  for (const note of await self.registration.getNotifications()) note.close();
  return null;
}

// A press: the card, or a Deny of exactly what was shown. Approving takes the card.

self.addEventListener("notificationclick", (event) => {
  const { notification, action } = event;
  notification.close();
  event.waitUntil(action === "deny" ? deny(notification.data) : open(notification.data?.url ?? "/ui/approvals/"));
});

async function open(path) {
  const url = new URL(path, self.location.origin).href;
  const pages = await windows();
  const there = pages.find((page) => page.url === url) ?? pages.find((page) => new URL(page.url).pathname === "/ui/approvals/");
  if (!there) return self.clients.openWindow(url);
  await there.focus().catch(() => {}); // a browser may refuse to bring a window to the front
  return there.url === url ? there : there.navigate(url);
}

async function deny(told) {
  const problem = await denied(told).catch(() => "Signalbox cannot be reached.");
  const words = problem
    ? { kind: "problem", title: "Nothing was denied", beside: `${problem} Open the request to decide.` }
    : { kind: "closed", title: `Denied: ${told.title}`, beside: "You denied it." };
  await show({ ...told, judged: undefined, at: undefined, ...words });
  if (!problem) await look();
}

async function denied({ id, judged }) {
  const csrf = await look();
  if (!csrf) return "You are signed out, or Signalbox cannot be reached.";
  const proof = await caches.match(PROOF, { cacheName: KEPT }).then((kept) => kept?.text() ?? "");
  const headers = { "X-CSRFToken": csrf, "X-Signalbox-Proof": proof, "HX-Request": "true" };
  const body = new URLSearchParams({ id, judged });
  const answer = await fetch("/ui/push/deny/", { method: "POST", headers, body, redirect: "manual" });
  if (answer.status === 204) return "";
  return (await answer.json().catch(() => ({}))).detail ?? `Signalbox answered ${answer.status}.`;
}

// A browser may give a device another address by itself; where that cannot be told, its person is.

self.addEventListener("pushsubscriptionchange", (event) => event.waitUntil(move(event)));

async function move({ oldSubscription, newSubscription }) {
  const now = newSubscription ?? (await self.registration.pushManager.subscribe(oldSubscription.options).catch(() => null));
  if (now && (await moved(now, oldSubscription?.endpoint ?? "").catch(() => false))) return;
  const words = "Open Signalbox, Approvals, Notifications, and switch them on again.";
  await show({ kind: "problem", title: "This device is not notified any more", body: words, url: "/ui/approvals/notifications/" });
}

async function moved(subscription, replaces) {
  const csrf = await look();
  const proof = await caches.match(PROOF, { cacheName: KEPT }).then((kept) => kept?.text() ?? "");
  const { endpoint, keys } = subscription.toJSON();
  const headers = { "X-CSRFToken": csrf ?? "", "X-Signalbox-Proof": proof, "HX-Request": "true" };
  const body = new URLSearchParams({ endpoint, ...keys, device: "", replaces });
  return (await fetch("/ui/push/subscribe/", { method: "POST", headers, body })).ok;
}
