// The page's one stream (/ui/live/): turns what the server says has changed into DOM events and swaps fragments.
//
//   live:<topic>, live:<topic>:<key>   on <body>, detail {id, at, topic, key, parent, op, count}: for hx-trigger
//   live:<view>                        on <body>, what the server has drawn for all who look at a view ("timeline:ID")
//   live:reset                         too much was missed: whoever shows live things loads them afresh
//   refresh                            on an element with data-refresh-on="<topic>:<milliseconds> …": one of its topics has
//                                      changed; at most once in so long a time, but always after the last change
//
// A hidden tab holds no stream (a browser gives a host six connections); shown again, it catches up by id.
// Paused, what arrives is kept and counted, and shown on resume.
const body = document.body;
const topics = [...new Set((body.dataset.liveTopics ?? "").split(/\s+/).filter(Boolean))];
const button = document.querySelector("#live");
const announcer = document.querySelector("#live-announcer");
const words = { live: "Live", paused: "Paused", reconnecting: "Connecting", off: "Offline" };
const mostHeld = 500; // signals, fragments and drawings kept while paused; beyond, resuming loads afresh
const longestWait = 30_000; // milliseconds between tries
const triesBeforeOff = 4;
const loadedAgainAfter = 5_000; // milliseconds after which a refresh that failed is tried again
const settledAfter = 5_000; // milliseconds a stream must stand before a break counts as the first again
const inserts = new Set(["afterbegin", "beforeend", "beforebegin", "afterend"]);

const refreshed = new Map(); // by the id of an element that was refreshed a moment ago: whether more has changed since
const unloaded = new Set(); // ids of elements that could not be refreshed: they are once the server is there again

let stream = null;
let last = body.dataset.liveAfter ?? "";
let timer = 0;
let settled = 0;
let tries = 0;
let paused = false;
let held = [];
let overflowed = false;
let arrived = 0;

function show(state) {
  if (!button) return;
  button.hidden = false;
  button.dataset.state = state;
  button.setAttribute("aria-pressed", String(paused));
  button.querySelector("[data-live-word]").textContent = words[state];
  const count = button.querySelector("[data-live-count]");
  count.hidden = !paused || arrived === 0;
  count.textContent = `${arrived} new`;
}

function showNow() {
  if (paused) show("paused");
  else if (stream?.readyState === EventSource.OPEN) show("live");
  else show(tries >= triesBeforeOff ? "off" : "reconnecting");
}

function fire(name, detail) {
  body.dispatchEvent(new CustomEvent(name, { detail, bubbles: true }));
}

function tell(signal) {
  fire(`live:${signal.topic}`, signal);
  fire(`live:${signal.topic}:${signal.key}`, signal);
  if (signal.parent) fire(`live:${signal.topic}:${signal.parent}`, signal);
  for (const element of document.querySelectorAll("[data-refresh-on]")) {
    const times = element.dataset.refreshOn.split(/\s+/).map((one) => one.split(":"));
    const every = times.find(([topic]) => topic === signal.topic)?.[1];
    if (every) refresh(element, Number(every));
  }
}

// Not htmx's throttle: what changes before its time is over is never loaded.
function refresh(element, every) {
  const { id } = element;
  if (refreshed.has(id)) {
    refreshed.set(id, true);
    return;
  }
  refreshed.set(id, false);
  load(id);
  setTimeout(() => {
    const changed = refreshed.get(id);
    const now = document.getElementById(id);
    refreshed.delete(id);
    if (changed && now) refresh(now, every);
  }, every);
}

function load(id) {
  const element = document.getElementById(id);
  if (stream?.readyState !== EventSource.OPEN) unloaded.add(id);
  else if (element) window.htmx.trigger(element, "refresh");
}

function loadWhatIsLeft() {
  const left = [...unloaded];
  unloaded.clear();
  left.forEach(load);
}

for (const failure of ["htmx:sendError", "htmx:responseError"]) {
  body.addEventListener(failure, ({ target, detail }) => {
    const isRefused = detail.xhr?.status >= 400 && detail.xhr.status < 500; // and would be again
    if (!target.dataset?.refreshOn || isRefused) return;
    unloaded.add(target.id);
    setTimeout(loadWhatIsLeft, loadedAgainAfter);
  });
}

// An element that is on the page already is brought up to date where it stands, not inserted once more.
function placeOf(fragment) {
  if (inserts.has(fragment.swap)) {
    const parsed = new DOMParser().parseFromString(`<template>${fragment.html}</template>`, "text/html");
    const id = parsed.querySelector("template").content.firstElementChild?.id;
    const there = id && document.getElementById(id);
    if (there) return [[there], "morph:outerHTML"];
  }
  const style = fragment.swap === "morph" ? "morph:outerHTML" : fragment.swap;
  return [document.querySelectorAll(fragment.target), style];
}

function swap(fragment) {
  const [elements, swapStyle] = placeOf(fragment);
  for (const element of elements) {
    window.htmx.swap(element, fragment.html, { swapStyle, swapDelay: 0, settleDelay: 20 }, { contextElement: element });
  }
}

// Who shows live things says so with hx-trigger="… live:reset from:body"; a page where nobody does is loaded again.
function reset() {
  if (!document.querySelector("#main [hx-trigger*='live:reset'], #main [data-hx-trigger*='live:reset'], #main [data-live-reset]")) {
    location.reload();
    return;
  }
  fire("live:reset", {});
}

function take(kind, value) {
  if (!paused) {
    deliver(kind, value);
    return;
  }
  if (kind === "signal" && value.op === "insert") arrived += value.count;
  if (held.length < mostHeld) held.push([kind, value]);
  else overflowed = true;
  showNow();
}

function deliver(kind, value) {
  if (kind === "signal") tell(value);
  else if (kind === "fragment") swap(value);
  else if (kind === "drawing") fire(`live:${value.view}`, value);
  else reset();
}

function connect() {
  clearTimeout(timer);
  disconnect();
  const query = new URLSearchParams({ topics: topics.join(" "), last });
  stream = new EventSource(`/ui/live/?${query}`);
  stream.addEventListener("open", () => {
    settled = setTimeout(() => (tries = 0), settledAfter);
    showNow();
    loadWhatIsLeft();
  });
  stream.addEventListener("ready", (event) => (last = event.lastEventId));
  for (const kind of ["signal", "fragment", "drawing", "reset"]) {
    stream.addEventListener(kind, (event) => {
      if (event.lastEventId) last = event.lastEventId;
      take(kind, JSON.parse(event.data));
    });
  }
  stream.addEventListener("error", retry);
  showNow();
}

function disconnect() {
  clearTimeout(settled);
  stream?.close();
  stream = null;
}

// The browser's own reconnecting neither backs off nor spreads a crowd that a restart has cut off.
function retry() {
  disconnect();
  clearTimeout(timer);
  const wait = Math.min(longestWait, 500 * 2 ** tries) * (0.5 + Math.random());
  tries += 1;
  showNow();
  if (!document.hidden) timer = setTimeout(connect, tries === 1 ? 50 + 250 * Math.random() : wait);
}

function pause() {
  paused = true;
  if (announcer) announcer.textContent = "Live updates paused";
  showNow();
}

function resume() {
  const waiting = held;
  const lost = overflowed;
  paused = false;
  held = [];
  overflowed = false;
  arrived = 0;
  if (lost) reset();
  else for (const [kind, value] of waiting) deliver(kind, value);
  if (announcer) announcer.textContent = "Live updates resumed";
  showNow();
}

function follow() {
  if (document.hidden) {
    clearTimeout(timer);
    disconnect();
  } else if (!stream) {
    tries = 0;
    connect();
  }
}

if (topics.length && "EventSource" in window) {
  if (button) {
    button.dataset.key = "p";
    button.addEventListener("click", () => (paused ? resume() : pause()));
  }
  document.addEventListener("visibilitychange", follow);
  window.addEventListener("pagehide", disconnect);
  window.addEventListener("pageshow", follow);
  window.addEventListener("offline", retry); // the stream itself hears of it much later
  window.addEventListener("online", () => !stream && follow());
}
