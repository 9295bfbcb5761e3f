// One session's timeline: rows arrive, calls are completed in place, the end is followed while the reader is there.
// Without this script the page reads the same; "Earlier" and "Later" are then ordinary links.
const MOST_ROWS = 400; // a page that grows for hours stays quick: what is far from the reader goes
const PAUSE = 250; // ms between two fetches of news
const SEARCH_PAUSE = 5000; // ms until what arrived is searched: the index learns of it a few seconds later
const SUMMARY_LATE = 4000; // ms after which a summary that the stream has not brought is fetched

const session = () => document.querySelector("#window")?.dataset.session;
const tail = () => document.querySelector("#tail");
const foot = () => document.querySelector("#draft") ?? tail();
const entries = () => document.querySelector("#entries");
const rows = () => [...entries().querySelectorAll(":scope > [data-place]")];
const nearEnd = () => window.innerHeight + window.scrollY >= document.documentElement.scrollHeight - 120;

// Places.

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
    entries().insertBefore(row, all[after] ?? foot());
    row.classList.add("arrived");
  } else {
    return false;
  }
  htmx.process(row);
  return !old;
}

// News.
//
// The stream brings rows as the server has drawn them, once for everybody who looks at this session. What it cannot
// bring (too much was missed, a search for words) is fetched, with all that came since the tail's mark.

let fetching = false;
let again = false;
let unseen = 0;

const since = () => Number(new URL(tail().dataset.news, window.location.href).searchParams.get("since"));

function mark(upto) {
  const url = new URL(tail().dataset.news, window.location.href);
  url.searchParams.set("since", String(upto));
  tail().dataset.news = url.pathname + url.search;
}

// What this reader's filters let through. A search is followed by fetching alone: what is found, the index says.
function isWanted(row) {
  const { categories, tool, errors } = document.querySelector("#window").dataset;
  if (!(errors === "yes" ? row.among_errors : row.among_all)) return false;
  if (!row.category) return !categories && !tool && errors !== "yes";
  return (!categories || categories.split(" ").includes(row.category)) && (!tool || (row.category === "calls" && row.tool === tool));
}

function drawn(drawing) {
  if (drawing.key !== session()) return;
  if (drawing.draft !== undefined) showDraft(drawing.draft, drawing.upto);
  if (drawing.steer) document.dispatchEvent(new CustomEvent("steer:now", { detail: parse(drawing.steer) }));
  if ((drawing.draft ?? drawing.steer) !== undefined && !drawing.rows && !drawing.too_many) return;
  if (drawing.summary) showSummary(parse(drawing.summary));
  else if (document.querySelector("#window").dataset.searched === "yes") newsLater();
  else if (!drawing.rows) news();
  else if (!tail()) count(drawing.rows.filter(isWanted));
  else if (drawing.upto > since()) {
    showRows(drawing.rows.filter(isWanted).map((row) => [parse(row.html).firstElementChild, !row.completes]));
    mark(drawing.upto);
  }
}

// What the agent does this moment, at the timeline's foot. Its terminal stays at its end, where the reader left it there.
let draftUpto = 0;

function showDraft(html, upto) {
  const old = document.querySelector("#draft");
  if (!old || upto < draftUpto) return;
  draftUpto = upto;
  const follow = nearEnd();
  window.Idiomorph.morph(old, parse(html).firstElementChild);
  for (const output of document.querySelectorAll("#draft .draft-output")) output.scrollTop = output.scrollHeight;
  if (follow && !document.querySelector("#draft").hidden) toEnd();
}

// The end is not in this page: calls in it are completed, what is new is counted.
function count(wanted) {
  for (const row of wanted) place(parse(row.html).firstElementChild, false);
  later(wanted.filter((row) => !row.completes).length);
}

async function news() {
  if (!tail()) return later(1);
  if (fetching) {
    again = true;
    return undefined;
  }
  fetching = true;
  try {
    const came = await fragment(tail().dataset.news);
    if (came && tail()) showFetched(came);
  } finally {
    fetching = false;
  }
  if (again) {
    again = false;
    setTimeout(news, PAUSE);
  }
  return undefined;
}

let searching = 0;

function newsLater() {
  searching ||= setTimeout(() => {
    searching = 0;
    news();
  }, SEARCH_PAUSE);
}

// What was fetched may be older than what the stream has brought meanwhile: then it only adds rows.
function showFetched(came) {
  const next = came.querySelector("#tail");
  const upto = Number(new URL(next.dataset.news, window.location.href).searchParams.get("since"));
  const isOld = upto < since();
  const fetched = [...came.querySelectorAll("li[data-place]:not(li li)")]
    .filter((row) => !isOld || !document.getElementById(row.id))
    .map((row) => [row, !("completes" in row.dataset)]);
  for (const [row] of fetched) delete row.dataset.completes;
  showRows(fetched);
  if (!isOld) tail().replaceWith(next);
}

function showRows(came) {
  const follow = nearEnd();
  let added = 0;
  for (const [row, isNew] of came) {
    if (place(row, isNew)) added += 1;
  }
  if (added) document.querySelector("#nothing")?.remove();
  if (follow) {
    trim("start");
    toEnd();
  } else if (added) {
    later(added);
  }
  if (came.length) document.dispatchEvent(new CustomEvent("timeline:changed"));
}

// How many are new below.

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

// Reading on.

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
    document.querySelector("#draft")?.remove();
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
  const now = came.querySelector("#entries > #draft");
  if (!older && now && !document.querySelector("#draft")) entries().insertBefore(now, tail());
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

// The summary: header, actions, numbers beside the filters.

let summaryTimer = 0;

function showSummary(came) {
  clearTimeout(summaryTimer);
  summaryTimer = 0;
  window.Idiomorph.morph(document.querySelector("#session-name"), came.querySelector("#session-name"));
  showName();
  for (const button of came.querySelectorAll("[data-copy], [data-copy-link]")) button.hidden = !navigator.clipboard;
  window.Idiomorph.morph(document.querySelector("#session-head"), came.querySelector("#session-head"));
  window.Idiomorph.morph(document.querySelector("#session-actions"), came.querySelector("#session-actions"));
  const ways = came.querySelector("#session-ways");
  const open = document.querySelector("#session-ways");
  if (ways && open) window.Idiomorph.morph(open, ways);
  else if (ways) document.querySelector("#session-head").after(ways);
  document.dispatchEvent(new CustomEvent("steer:now", { detail: came.querySelector("#steer-changes")?.content }));
  if (tail()) tail().innerHTML = came.querySelector("#tail-words").innerHTML;
  for (const fresh of came.querySelectorAll("data[data-facet]")) {
    // Only the numbers: replacing the whole bar would close menus and disturb a search being typed.
    const facet = document.querySelector(`#timeline-bar a[data-facet="${fresh.dataset.facet}"]`);
    if (!facet) continue;
    facet.querySelector(".count").textContent = fresh.textContent;
    facet.toggleAttribute("data-none", fresh.value === "0");
    if (fresh.title) facet.title = fresh.title;
    if (!fresh.hidden) facet.hidden = false;
  }
}

// The session's name is the tab's, too (attention.js keeps the number of waiting requests before it).
function showName() {
  const name = document.querySelector("#session-name");
  document.dispatchEvent(new CustomEvent("page:titled", { detail: `${name.textContent.trim()} · Signalbox` }));
}

async function fetchSummary() {
  const came = await fragment(document.querySelector("#session-head").dataset.header).catch(() => null);
  if (came) showSummary(came);
}

// The stream brings the summary a moment after something has changed; if it does not, it is fetched.
function summaryIsDue() {
  summaryTimer ||= setTimeout(fetchSummary, SUMMARY_LATE * (1 + Math.random()));
}

// That a session has become idle nobody tells: it is silence.
setInterval(() => document.hidden || !document.querySelector("#session-head [data-running]") || fetchSummary(), 60_000);

// Folding everything, permalinks.

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

// An address loses what follows its # where its reader had to sign in first: the event stands in the query, too.
const linked = () => new URL(window.location.href).searchParams.get("event");

function openLinked() {
  const row = document.getElementById(`event-${linked()}`)?.closest(".entry");
  if (!row) return;
  const fold = row.querySelector(":scope > [data-fold]");
  if (fold) fold.open = true;
  row.classList.add("linked");
  bring(row);
}

// Going on from where the reader is.

const picked = () => entries()?.querySelector("[data-place].selected, [data-place]:target, [data-place]:has(> :target)");

function topmost() {
  const top = document.querySelector("#timeline-bar")?.getBoundingClientRect().bottom ?? 0;
  return rows().find((row) => row.getBoundingClientRect().bottom > top + 8);
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-go]");
  if (!link) return;
  const row = picked() ?? topmost();
  if (!row) return;
  const url = new URL(link.href);
  url.searchParams.set("place", row.dataset.place);
  url.searchParams.delete("event");
  if (row === picked()) {
    // Beyond this row: an error is told by the end of its call, which may stand far behind the place of the row.
    const id = row.querySelector(":scope > .anchor")?.id ?? row.id;
    if (id.startsWith("event-")) url.searchParams.set("event", id.slice("event-".length));
  }
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

// Begin.

if (session()) {
  document.body.addEventListener("live:timeline", (event) => drawn(event.detail));
  for (const topic of ["events", "sessions", "runs"]) {
    document.body.addEventListener(`live:${topic}`, (event) => {
      if ([event.detail.key, event.detail.parent].includes(session())) summaryIsDue();
    });
  }
  // What has changed on the page stands there already when its signal comes.
  document.body.addEventListener("live:session_titles", (event) => event.detail.key === session() && showName());
  document.body.addEventListener("live:reset", () => {
    news();
    fetchSummary();
  });
  document.body.addEventListener("htmx:afterSettle", watch);
  window.addEventListener("hashchange", openTarget);
  watch();
  if (window.location.hash) openTarget();
  else if (linked()) openLinked();
  else if (tail() && document.querySelector("#window").dataset.follow === "yes") {
    toEnd();
  }
}
