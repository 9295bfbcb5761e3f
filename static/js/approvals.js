// The approvals inbox: what a person types, selects and has selected survives live updates; a card whose deadline
// passes says so at once; requests that somebody has had before their eyes are noted.
const inbox = () => document.querySelector("#inbox, #request, #one");
const csrf = () => JSON.parse(document.body.getAttribute("hx-headers"))["X-CSRFToken"];
const cards = () => [...document.querySelectorAll("[data-row].ask:not([data-passed])")];
const noted = new Set();
let selected = "";
let selectedAt = 0; // its place among the cards: when it is gone, the next one is selected

// A box stays as it was when it was ticked: what has changed since, or came to the card, was not chosen. An open list of
// choices stays under the hand.
const stays = "[data-keep], [data-choose]:checked, select:focus";
window.Idiomorph.defaults.callbacks.beforeNodeMorphed = (before, after) =>
  !(before.matches?.(stays) && before.id === after.id);

// Who opened or folded something wants it so. (What is new is still empty here.)
window.Idiomorph.defaults.callbacks.beforeAttributeUpdated = (name, node) =>
  !(name === "data-open" || (name === "open" && node.matches("details, dialog") && node.hasChildNodes()));

// On a wide screen the card that is selected is open, in the pane beside the list: the first one as long as none is, and
// the next that waits where the selected one is decided. On a narrow one a person opens cards where they stand.
const wide = matchMedia("(width >= 68rem)");

function setOpen(card, open) {
  card.toggleAttribute("data-open", open);
  for (const button of card.querySelectorAll("[data-toggle-card]")) button.setAttribute("aria-expanded", `${open}`);
}

function openCards() {
  const all = [...document.querySelectorAll(".inbox .ask")];
  const current = all.findIndex((card) => card.matches(".selected"));
  const waits = (card) => !card.matches("[data-passed]");
  const open = all.slice(Math.max(current, 0)).find(waits) ?? all.findLast(waits);
  for (const card of all) setOpen(card, wide.matches ? card === open : card.matches("[data-open]"));
}

wide.addEventListener("change", openCards);
document.addEventListener("row-selected", openCards);
document.addEventListener("click", (event) => {
  const button = event.target.closest?.("[data-toggle-card]");
  if (button) setOpen(button.closest(".ask"), !button.closest(".ask").matches("[data-open]"));
  // beside the list there is more to read than on the page of a request: a press by hand on the headline selects it
  const isPlain = event.detail > 0 && !event.ctrlKey && !event.metaKey && !event.shiftKey;
  if (wide.matches && isPlain && event.target.closest?.(".inbox .ask:not([data-passed]) [data-open]")) event.preventDefault();
});

// A verdict on its way keeps its form, whatever arrives meanwhile: without it, the answer would find no place and
// nobody would be told who was faster.
window.Idiomorph.defaults.callbacks.beforeNodeRemoved = (node) =>
  !(node.matches?.(".htmx-request") || node.querySelector?.(".htmx-request"));

// Who asks can make a card longer while a hand is on its way to the one below, so that another card's button comes to
// lie there. A press by hand that follows a move this soon was not meant for what it would hit. Nor was a key meant for
// who has just joined the card that it decides, or for a card that has just been selected in place of one that went.
const reaction = 500; // milliseconds
let places = new Map();
let moved = -reaction;
let asked = new Map();
const changed = new Map(); // when a card last came to stand for other requests, by its id

const placesNow = () =>
  new Map([...document.querySelectorAll(".ask[id]")].map((card) => [card.id, card.querySelector(".decide")?.getBoundingClientRect().top]));

const askedNow = () => new Map([...document.querySelectorAll(".ask[id]")].map((card) => [card.id, decidable(card).join()]));

function noteChanges(was, is) {
  for (const [id, ids] of askedNow()) if (asked.has(id) && asked.get(id) !== ids) changed.set(id, performance.now());
  if (was && is && is !== was) changed.set(is, performance.now());
}

function noteMoves() {
  const now = placesNow();
  const differs = ([id, top]) => top !== undefined && now.get(id) !== undefined && Math.abs(now.get(id) - top) > 4;
  const replaced = document.querySelector("#one") && [...now.keys()].join() !== [...places.keys()].join();
  if (replaced || [...places].some(differs)) moved = performance.now();
}

window.addEventListener("click", (event) => {
  const pressed = event.target.closest?.(".decide button, .decide input");
  if (!pressed) return;
  const byHand = event.detail > 0; // a key presses what is selected, wherever it lies
  const since = byHand ? moved : changed.get(pressed.closest(".ask")?.id) ?? -reaction;
  if (performance.now() - since > reaction) return;
  event.preventDefault();
  event.stopImmediatePropagation();
  const what = byHand ? "The requests have just moved" : "What this key would decide has just changed";
  const text = `${what}. Check the request, then try again.`;
  document.body.dispatchEvent(new CustomEvent("toast", { detail: { level: "warning", text } }));
}, true);

document.body.addEventListener("htmx:beforeSwap", (event) => {
  event.detail.requestConfig.elt.classList.remove("htmx-request"); // this one has arrived
  selected = document.querySelector("[data-row].selected")?.id ?? "";
  selectedAt = cards().findIndex((card) => card.id === selected);
  places = placesNow();
  asked = askedNow();
});

document.body.addEventListener("htmx:afterSwap", () => {
  const next = selected ? document.getElementById(selected) ?? cards()[selectedAt] ?? cards().at(-1) : null;
  next?.classList.add("selected");
  openCards();
  noteMoves();
  noteChanges(selected, next?.id);
  look();
});

// Requests that were decided together, or put off, need not stay on the page; the others are drawn as they are now.
const gone = new Set();
const idsShown = () => [...inbox().querySelectorAll("[name=ids]")].map((input) => input.value);
document.body.addEventListener("arranged", ({ detail }) => {
  for (const id of detail.all ? idsShown() : detail.ids) gone.add(id);
  window.htmx.trigger(inbox(), "expired");
});

document.body.addEventListener("htmx:configRequest", ({ detail }) => {
  if (detail.verb !== "get" || detail.elt !== inbox()) return;
  const ids = detail.formData.getAll("ids").filter((id) => !gone.has(id));
  detail.formData.delete("ids");
  if (gone.has(detail.formData.get("shown"))) detail.formData.delete("shown");
  for (const id of ids) detail.formData.append("ids", id);
});

// A key that opens one of a card's tools goes on inside it.
document.addEventListener("toggle", ({ target }) => {
  if (target.matches?.(".ask-tool[open]")) target.querySelector("button")?.focus({ preventScroll: true });
}, true);

// Tomorrow morning is the person's own.
const zone = new Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
document.addEventListener("formdata", ({ target, formData }) => {
  if (target.matches("[data-with-zone]")) formData.set("zone", zone);
});

// A time in a form is the person's own, too, until they write another zone beside it.
function nameOwnZones() {
  for (const field of document.querySelectorAll("input[data-own-zone]")) {
    if (field.value === field.defaultValue) field.value = zone;
  }
}

function look() {
  nameOwnZones();
  watchDeadlines();
  note();
}

// Housekeeping records the expiry within seconds; the page that shows the countdown should not wait for that.
let timer = 0;
function watchDeadlines() {
  clearTimeout(timer);
  const now = Date.now();
  const ends = [...document.querySelectorAll("[data-deadline]")].map((element) => {
    const left = new Date(element.dataset.deadline) - now;
    element.classList.toggle("soon", left < 60_000);
    return left;
  });
  const returns = inbox()?.dataset.returns; // when the first snoozed request is back
  if (returns) ends.push(new Date(returns) - now);
  const next = Math.min(...ends, 30_000);
  if (ends.some((left) => left <= 0)) window.htmx.trigger(inbox(), "expired");
  timer = setTimeout(watchDeadlines, Math.max(next + 50, ends.length ? 500 : 30_000));
}

// Only what is on a visible screen counts as seen: a hidden tab that refreshes itself has seen nothing.
const shown = new IntersectionObserver((entries) => {
  const ids = entries.filter((entry) => entry.isIntersecting).flatMap((entry) => idsOf(entry.target));
  if (ids.length && !document.hidden) send(ids);
});

function idsOf(card) {
  return [...card.querySelectorAll(".decide, .asker")].length
    ? decidable(card).filter((id) => !noted.has(id))
    : [];
}

function decidable(card) {
  return [...card.querySelectorAll("input[name=ids]:not([form=no-form])")].map((input) => input.value);
}

function note() {
  if (!document.body.classList.contains("can-approve")) return;
  shown.disconnect();
  for (const card of document.querySelectorAll(".ask:not(.ended)")) if (idsOf(card).length) shown.observe(card);
}

function send(ids) {
  const form = new URLSearchParams(ids.map((id) => ["ids", id]));
  for (const id of ids) noted.add(id);
  const headers = { "X-CSRFToken": csrf(), "HX-Request": "true" };
  document.dispatchEvent(new CustomEvent("proof:add", { detail: headers }));
  fetch("/ui/approvals/seen/", { method: "POST", body: form, headers })
    .catch(() => ids.forEach((id) => noted.delete(id)));
}

document.addEventListener("visibilitychange", () => document.hidden || look());
openCards();
document.querySelector("#one .ask")?.classList.add("selected");
look();
