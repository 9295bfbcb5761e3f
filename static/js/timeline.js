// One session's timeline: rows arrive, calls are completed in place, the end is followed while the reader is there.
// Without this script the page reads the same; "Earlier" and "Later" are then ordinary links.
const MOST_ROWS = 400; // a page that grows for hours stays quick: what is far from the reader goes
const PAUSE = 250; // ms between two fetches of news
const HEADER_PAUSE = 2000;

const session = () => document.querySelector("#window")?.dataset.session;
const tail = () => document.querySelector("#tail");
const entries = () => document.querySelector("#entries");
const rows = () => [...entries().querySelectorAll(":scope > [data-place]")];
const nearEnd = () => window.innerHeight + window.scrollY >= document.documentElement.scrollHeight - 120;

// --- places ---------------------------------------------------------------------------------------------------

function before(one, other) {
  const [at, id] = one.dataset.place.split(".");
  const [otherAt, otherId] = other.dataset.place.split(".");
  return BigInt(at) < BigInt(otherAt) || (at === otherAt && BigInt(id) < BigInt(otherId));
}

function parse(html) {
  const holder = document.createElement("template");
  holder.innerHTML = html;
  return holder.content;
}

async function fragment(url) {
  const answer = await fetch(url, { headers: { "HX-Request": "true" }, credentials: "same-origin" });
  const elsewhere = answer.headers.get("HX-Redirect");
  if (elsewhere) {
    window.location.assign(elsewhere);
    return null;
  }
  return answer.ok ? parse(await answer.text()) : null;
}

// Put a row where it belongs; one that is there already is replaced, keeping what the reader had opened.
function place(row, isNew) {
  const old = document.getElementById(row.id);
  if (old) {
    const fold = old.querySelector(":scope > [data-fold]");
    const fresh = row.querySelector(":scope > [data-fold]");
    if (fold && fresh) fresh.open = fold.open || fresh.open;
    if (old.classList.contains("selected")) row.classList.add("selected");
    if (old.contains(document.activeElement)) requestAnimationFrame(() => row.querySelector("[data-open]")?.focus({ preventScroll: true }));
    old.replaceWith(row);
    row.classList.add("changed");
  } else if (isNew) {
    const all = rows();
    let after = all.length;
    while (after > 0 && before(row, all[after - 1])) after -= 1;
    if (after === 0 && all.length && document.querySelector("#older")) return false; // it belongs to an earlier stretch
    entries().insertBefore(row, all[after] ?? tail());
    row.classList.add("arrived");
  } else {
    return false;
  }
  htmx.process(row);
  return !old;
}

// --- news -----------------------------------------------------------------------------------------------------

let fetching = false;
let again = false;
let unseen = 0;

async function news() {
  if (!tail()) return later(1);
  if (fetching) {
    again = true;
    return undefined;
  }
  fetching = true;
  const follow = nearEnd();
  try {
    const came = await fragment(tail().dataset.news);
    if (came && tail()) show(came, follow);
  } finally {
    fetching = false;
  }
  if (again) {
    again = false;
    setTimeout(news, PAUSE);
  }
  return undefined;
}

function show(came, follow) {
  const next = came.querySelector("#tail");
  let added = 0;
  for (const row of came.querySelectorAll("li[data-place]:not(li li)")) {
    if (place(row, !("completes" in row.dataset))) added += 1;
  }
  if (next) tail().replaceWith(next);
  if (added) document.querySelector("#nothing")?.remove();
  if (follow) {
    trim("start");
    toEnd();
  } else if (added) {
    later(added);
  }
  headerSoon();
  document.dispatchEvent(new CustomEvent("timeline:changed"));
}

// Of a question nobody can tell from outside whose session it is about: one that this page shows is looked at now.
// A new one may be anybody's, and every open page asks: not all at once. That one of elsewhere changed is no news.
const SPREAD = 1500;
let asking = 0;

function asked({ key, op, count }) {
  if (document.getElementById(`request-${key}`)) news();
  else if (op === "insert" || count > 1) {
    asking ||= setTimeout(() => {
      asking = 0;
      news();
    }, SPREAD * Math.random());
  }
}

// --- how many are new below -------------------------------------------------------------------------------------

const pill = document.querySelector("#unseen");

function later(added) {
  unseen += added;
  if (!pill) return undefined;
  pill.hidden = unseen === 0;
  pill.querySelector("[data-count]").textContent = unseen.toLocaleString();
  return undefined;
}

function seen() {
  if (unseen && tail() && nearEnd()) {
    unseen = 0;
    later(0);
  }
}

pill?.addEventListener("click", (event) => {
  if (!tail()) return; // the end is not in this page: follow the link
  event.preventDefault();
  toEnd();
  seen();
});
window.addEventListener("scroll", seen, { passive: true });

// --- reading on -------------------------------------------------------------------------------------------------

function trim(side) {
  const all = rows();
  const surplus = all.length - MOST_ROWS;
  if (surplus <= 0) return;
  const gone = side === "start" ? all.slice(0, surplus) : all.slice(-surplus);
  for (const row of gone) row.remove();
  const url = new URL(document.querySelector("#window").dataset.here, window.location.href);
  if (side === "start") {
    url.searchParams.set("before", rows()[0].dataset.place);
    more("older", url, "beforebegin");
  } else {
    url.searchParams.set("after", rows().at(-1).dataset.place);
    more("newer", url, "afterend");
    tail()?.remove();
  }
}

function more(id, url, where) {
  const known = document.getElementById(id);
  const link = known ?? document.querySelector(`#${id}-model`).content.firstElementChild.cloneNode(true);
  link.href = url.pathname + url.search;
  if (!known) entries().insertAdjacentElement(where, link);
}

async function extend(link) {
  if (link.dataset.busy) return;
  link.dataset.busy = "yes";
  const older = link.id === "older";
  const came = await fragment(link.href).catch(() => null);
  if (!came) {
    delete link.dataset.busy;
    return;
  }
  const height = document.documentElement.scrollHeight;
  const newRows = [...came.querySelectorAll("#entries > [data-place]")].filter((row) => !document.getElementById(row.id));
  if (older) entries().prepend(...newRows);
  else entries().append(...newRows);
  const next = came.querySelector(`#${link.id}`);
  if (next) link.replaceWith(next);
  else link.remove();
  const end = came.querySelector("#entries > #tail");
  if (!older && end) entries().append(end);
  newRows.forEach((row) => htmx.process(row));
  if (older) window.scrollBy({ top: document.documentElement.scrollHeight - height, behavior: "instant" });
  trim(older ? "end" : "start");
  watch();
  document.dispatchEvent(new CustomEvent("timeline:changed"));
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("a.more");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  event.preventDefault();
  extend(link);
});

const reached = new IntersectionObserver(
  (seenNow) => seenNow.forEach((entry) => entry.isIntersecting && extend(entry.target)),
  { rootMargin: "400px 0px" },
);

function watch() {
  reached.disconnect();
  const newer = document.querySelector("#newer");
  if (newer) reached.observe(newer); // earlier rows come on demand only: the page must not run away upwards
}

// --- the header ---------------------------------------------------------------------------------------------------

let headerTimer = 0;

function headerSoon() {
  headerTimer ||= setTimeout(async () => {
    headerTimer = 0;
    const head = document.querySelector("#session-head");
    const came = head && (await fragment(head.dataset.header).catch(() => null));
    const fresh = came?.querySelector("#session-head");
    if (!fresh) return;
    window.Idiomorph.morph(head, fresh);
    const actions = came.querySelector("#session-actions");
    if (actions) window.Idiomorph.morph(document.querySelector("#session-actions"), actions);
    for (const facet of came.querySelectorAll("#timeline-bar .facets > a.facet")) refreshFacet(facet);
  }, HEADER_PAUSE);
}

// That a session has become idle nobody tells: it is silence.
setInterval(() => document.hidden || !document.querySelector("#session-head [data-running]") || headerSoon(), 60_000);

// Only the numbers: replacing the whole bar would close menus and disturb a search being typed.
function refreshFacet(fresh) {
  const name = fresh.firstChild.textContent;
  for (const facet of document.querySelectorAll("#timeline-bar .facets > a.facet")) {
    if (facet.className === fresh.className && facet.getAttribute("href") === fresh.getAttribute("href") && facet.firstChild.textContent === name) {
      facet.querySelector(".count").textContent = fresh.querySelector(".count").textContent;
      facet.toggleAttribute("data-none", fresh.hasAttribute("data-none"));
    }
  }
}

// --- folding everything, permalinks -------------------------------------------------------------------------------

document.querySelector("[data-unfold]")?.addEventListener("click", (event) => {
  const open = event.currentTarget.getAttribute("aria-pressed") !== "true";
  event.currentTarget.setAttribute("aria-pressed", String(open));
  for (const fold of entries().querySelectorAll("details.call-body[data-fold]:not([hx-get])")) fold.open = open;
});

// Rows out of sight are not laid out until they come near (content-visibility), so heights above the row change as
// it is brought into sight: look again until it stays where it should.
function bring(row, tries = 8) {
  row.scrollIntoView({ block: "center", behavior: "instant" });
  if (tries > 0) requestAnimationFrame(() => bring(row, tries - 1));
}

// The same for the end; a reader who scrolls up meanwhile is let go.
function toEnd(tries = 4, reached = 0) {
  if (window.scrollY < reached - 1) return;
  window.scrollTo({ top: document.documentElement.scrollHeight, behavior: "instant" });
  const here = window.scrollY;
  if (tries > 0) requestAnimationFrame(() => toEnd(tries - 1, here));
}

function openTarget() {
  const id = decodeURIComponent(window.location.hash.slice(1));
  if (!/^event-\d+$/.test(id)) return;
  const row = document.getElementById(id)?.closest(".entry");
  if (row) {
    const fold = row.querySelector(":scope > [data-fold]");
    if (fold) fold.open = true;
    bring(row);
    return;
  }
  const url = new URL(window.location.href);
  const number = id.slice("event-".length);
  if (url.searchParams.get("event") === number) return; // asked for already: the filters leave it out
  url.searchParams.set("event", number);
  window.location.replace(url);
}

// --- going on from where the reader is -----------------------------------------------------------------------------

function here() {
  const picked = entries()?.querySelector("[data-place].selected, [data-place]:target, [data-place]:has(> :target)");
  if (picked) return picked;
  const top = document.querySelector("#timeline-bar")?.getBoundingClientRect().bottom ?? 0;
  return rows().find((row) => row.getBoundingClientRect().bottom > top + 8);
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-go]");
  const row = link && here();
  if (!row) return;
  const url = new URL(link.href);
  url.searchParams.set("place", row.dataset.place);
  link.href = url.pathname + url.search;
});

// A time is typed in the reader's own zone, and sent in UTC.
const timeForm = document.querySelector("[data-time-form]");
if (timeForm) {
  const field = timeForm.querySelector("[name=at]");
  timeForm.querySelector("[data-zone]").textContent = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const local = new Date(`${field.value}Z`);
  if (!Number.isNaN(local.getTime())) field.value = new Date(local - local.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
  timeForm.addEventListener("submit", (event) => {
    const moment = new Date(field.value);
    if (Number.isNaN(moment.getTime())) return;
    event.preventDefault();
    const url = new URL(window.location.pathname, window.location.href);
    for (const [name, value] of new FormData(timeForm)) url.searchParams.append(name, value);
    url.searchParams.set("at", moment.toISOString());
    window.location.assign(url);
  });
}

// --- begin ------------------------------------------------------------------------------------------------------

if (session()) {
  document.body.addEventListener("live:events", (event) => event.detail.parent === session() && news());
  document.body.addEventListener("live:sessions", (event) => event.detail.key === session() && headerSoon());
  document.body.addEventListener("live:permission_requests", (event) => asked(event.detail));
  document.body.addEventListener("live:runs", (event) => event.detail.parent === session() && headerSoon());
  document.body.addEventListener("live:reset", () => {
    news();
    headerSoon();
  });
  document.body.addEventListener("htmx:afterSettle", watch);
  window.addEventListener("hashchange", openTarget);
  watch();
  if (window.location.hash) openTarget();
  else if (tail() && document.querySelector("#window").dataset.follow === "yes") {
    toEnd();
  }
}
