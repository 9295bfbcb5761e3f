// This browser as a device that is told of requests: switched on and off, kept up to date, forgotten at sign-out.
// The service worker does the telling. It runs where somebody switched it on, or put Signalbox on a home screen.
import { able, forget, KEPT, PROOF, remember, RENEWED, SCOPE, unsubscribe } from "./device.js";

const place = "/ui/service-worker.js";
const patience = 2_000; // milliseconds that signing out waits for this browser to forget
const section = document.querySelector("[data-push-section]");
const mayDecide = document.body.classList.contains("can-approve");
const installed = matchMedia("(display-mode: standalone)").matches || navigator.standalone === true;
const onApple = /iPhone|iPad|iPod/.test(navigator.userAgent) || (/Mac/.test(navigator.userAgent) && navigator.maxTouchPoints > 1);

const toast = (level, text) => document.body.dispatchEvent(new CustomEvent("toast", { detail: { level, text } }));

async function post(door, fields = {}) {
  const headers = { "X-CSRFToken": JSON.parse(document.body.getAttribute("hx-headers"))["X-CSRFToken"], "HX-Request": "true" };
  document.dispatchEvent(new CustomEvent("proof:add", { detail: headers }));
  const answer = await fetch(`/ui/push/${door}/`, { method: "POST", headers, body: new URLSearchParams(fields) });
  const told = await answer.json().catch(() => ({}));
  if (answer.headers.has("HX-Redirect")) return { ok: false, detail: "You are signed out. Reload the page to sign in." };
  return { ok: answer.ok, ways: answer.headers.get("Signalbox-Confirm"), ...told };
}

const register = async () => {
  await navigator.serviceWorker.register(place, { scope: SCOPE });
  return navigator.serviceWorker.ready;
};

// Told by which a page knows its own device among those that the server lists (coordinator/actions/notifications/push.py).
async function markOf(subscription) {
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(subscription.endpoint));
  return [...new Uint8Array(digest)].map((byte) => byte.toString(16).padStart(2, "0")).join("").slice(0, 32);
}

// A Deny from a notification needs the proof of this browser's sign-in; a service worker cannot read where it is kept.
async function keepProof() {
  const headers = {};
  document.dispatchEvent(new CustomEvent("proof:add", { detail: headers }));
  const [proof] = Object.values(headers);
  if (proof) await (await caches.open(KEPT)).put(PROOF, new Response(proof));
  return Boolean(proof);
}

// Ties this device to the sign-in; where the server knows it no more, it ends here as well. Tried once a sign-in and tab.
async function renew(subscription) {
  const mark = await markOf(subscription);
  const once = `${mark} ${document.body.dataset.signIn}`;
  const listed = !section || section.querySelector(`[data-push-device="${mark}"]`);
  if (document.body.dataset.push === mark && listed) return true;
  if (sessionStorage.getItem(RENEWED) === once && listed) return true;
  const answer = await post("renew", { endpoint: subscription.endpoint });
  sessionStorage.setItem(RENEWED, once);
  if (answer.ok && !answer.kept) await unsubscribe();
  return !answer.ok || answer.kept;
}

// Somebody who decides nothing has signed in where another was told of requests, or may no longer decide: this browser
// ends its subscription, whatever the server says of it, and nothing of what requests said stays here.
async function leave(subscription) {
  await Promise.allSettled([post("renew", { endpoint: subscription.endpoint }), unsubscribe(), forget()]);
  return null;
}

let timer = 0;
function look(registration) {
  clearTimeout(timer);
  timer = setTimeout(() => registration.active?.postMessage({ kind: "look" }), 300);
}

function follow(registration) {
  navigator.serviceWorker.addEventListener("message", ({ data }) => {
    if (data?.kind !== "updated" || data.version === document.body.dataset.release) return;
    toast("info", "Signalbox was updated. Reload the page to work with the new version.");
  });
  if (!mayDecide) return;
  look(registration);
  document.body.addEventListener("live:permission_requests", () => look(registration));
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) return;
    look(registration);
    registration.update().catch(() => {}); // an app on a home screen may stay on one page for days
  });
}

async function begin() {
  let registration = able ? await navigator.serviceWorker.getRegistration(SCOPE) : undefined;
  if (able && !registration && installed) registration = await register();
  if (!registration) return null;
  follow(registration);
  const subscription = await registration.pushManager?.getSubscription();
  if (!subscription) return null;
  if (!mayDecide) return leave(subscription);
  const kept = !(await keepProof()) || (await renew(subscription));
  remember(kept);
  return kept ? subscription : null;
}

document.addEventListener("submit", async (event) => {
  if (!event.target.matches("[data-sign-out]") || !able) return;
  event.preventDefault();
  const enough = new Promise((done) => setTimeout(done, patience));
  await Promise.race([Promise.allSettled([unsubscribe(), forget()]), enough]);
  event.target.submit();
});

// The section "Your devices" of the page Approvals, Notifications.

function stateOf(subscription) {
  if (!window.isSecureContext) return "insecure";
  if (!able || !("PushManager" in window) || !("Notification" in window)) return onApple && !installed ? "home-screen" : "unsupported";
  if (Notification.permission === "denied") return "denied";
  return subscription ? "on" : "off";
}

function show(state, problem = "") {
  for (const one of section.querySelectorAll("[data-push-state]")) one.hidden = one.dataset.pushState !== state;
  section.querySelector("[data-push-form]").hidden = state !== "off";
  const place = section.querySelector("[data-push-problem]");
  place.hidden = !problem;
  place.querySelector("p").textContent = problem;
}

function nameOfThis() {
  const agent = navigator.userAgent;
  const found = (kinds) => kinds.find(([word]) => agent.includes(word))?.[1];
  const browser = found([["Edg", "Edge"], ["Firefox", "Firefox"], ["FxiOS", "Firefox"], ["CriOS", "Chrome"], ["Chrome", "Chrome"], ["Safari", "Safari"]]);
  const machine = found([["iPhone", "iPhone"], ["iPad", "iPad"], ["Android", "Android"], ["Windows", "Windows"], ["Mac", "Mac"], ["Linux", "Linux"]]);
  return [browser ?? "Browser", machine].filter(Boolean).join(" on ");
}

function bytes(key) {
  const raw = atob(key.replaceAll("-", "+").replaceAll("_", "/"));
  return Uint8Array.from(raw, (sign) => sign.charCodeAt(0));
}

async function subscribed(key) {
  const registration = await register();
  const old = await registration.pushManager.getSubscription();
  if (old) await old.unsubscribe(); // it may be bound to another key
  return registration.pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: bytes(key) });
}

async function switchOn(name) {
  if ((await Notification.requestPermission()) !== "granted") return show(stateOf(null));
  const key = await post("key");
  if (key.ways) return document.dispatchEvent(new CustomEvent("proof:wanted", { detail: { message: key.detail, ways: key.ways } }));
  if (!key.ok) return show("off", key.detail);
  const subscription = await subscribed(key.key).catch(() => null);
  if (!subscription) {
    return show("off", "This browser could not reach its push service. Check its network and its settings, then try again.");
  }
  const { endpoint, keys } = subscription.toJSON();
  const answer = await post("subscribe", { endpoint, ...keys, device: name });
  if (!answer.ok) {
    await unsubscribe();
    return show("off", answer.detail ?? "The device could not be added. Reload the page and try again.");
  }
  remember(true);
  location.reload();
}

async function drawSection(begun) {
  const name = section.querySelector("[data-push-name]");
  const button = section.querySelector("[data-push-on]");
  name.value ||= nameOfThis();
  section.querySelector("[data-push-form]").addEventListener("submit", async (event) => {
    event.preventDefault();
    button.disabled = true;
    await switchOn(name.value).catch(() => show("off", "Signalbox cannot be reached. Try again."));
    button.disabled = false;
  });
  const subscription = await begun;
  show(stateOf(subscription));
  if (!subscription) return;
  const here = section.querySelector(`[data-push-device="${await markOf(subscription)}"] [data-push-here]`);
  if (here) here.hidden = false;
}

const begun = begin().catch(() => null);
if (section) drawSection(begun);
