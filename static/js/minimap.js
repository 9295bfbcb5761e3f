// The strip of the whole session: its frame follows what the reader has on the screen, arrow keys walk its slices,
// and a time that the page holds already is scrolled to rather than loaded. The slices are links without all that.
const holder = () => document.querySelector("#minimap");
const slices = () => [...holder().querySelectorAll("[data-slice]")];
const rows = () => [...document.querySelectorAll("#entries > [data-place]")];
const at = (row) => Number(row.dataset.place.split(".")[0]);
const REDRAW = 15_000; // ms between two looks at how a running session has grown

// Where the reader is.

function percent(time) {
  const all = slices();
  const slice = all.findLast((one) => Number(one.dataset.from) <= time) ?? all[0];
  const [from, to] = [Number(slice.dataset.from), Number(slice.dataset.to)];
  const hit = slice.querySelector(".hit");
  const share = Math.min(Math.max((time - from) / (to - from), 0), 1);
  return parseFloat(hit.getAttribute("x")) + share * parseFloat(hit.getAttribute("width"));
}

let waiting = 0;

function frameSoon() {
  waiting ||= requestAnimationFrame(() => {
    waiting = 0;
    frame();
  });
}

function frame() {
  const bar = document.querySelector("#timeline-bar");
  const top = getComputedStyle(bar).position === "sticky" ? bar.getBoundingClientRect().bottom : 0;
  const seen = rows().filter((row) => {
    const box = row.getBoundingClientRect();
    return box.bottom > top && box.top < window.innerHeight;
  });
  if (!holder() || !seen.length) return;
  const first = percent(at(seen[0]));
  const rect = holder().querySelector(".in-view");
  rect.setAttribute("x", `${first}%`);
  rect.setAttribute("width", `${Math.max(percent(at(seen.at(-1))) - first, 0.4)}%`);
}

// Going there.

function scrollTo(event, slice) {
  const all = rows();
  const from = Number(slice.dataset.from);
  const row = all.find((one) => at(one) >= from);
  const before = all.length && at(all[0]) < from;
  if (!row || !before) return; // not in this page: follow the link
  event.preventDefault();
  row.scrollIntoView({ block: "start", behavior: "instant" });
  row.querySelector("[data-open]")?.focus({ preventScroll: true });
}

function hold(slice) {
  for (const other of holder().querySelectorAll('[tabindex="0"]')) other.setAttribute("tabindex", "-1");
  slice.setAttribute("tabindex", "0");
  slice.focus();
}

function move(event) {
  const all = [...holder().querySelectorAll("[data-slice], [data-slice-error]")];
  const here = all.indexOf(event.target.closest("a"));
  const next = { ArrowRight: here + 1, ArrowLeft: here - 1, Home: 0, End: all.length - 1 }[event.key];
  if (here < 0 || next === undefined) return;
  event.preventDefault();
  hold(all[Math.min(Math.max(next, 0), all.length - 1)]);
}

// A session that grows.

let timer = 0;

function redrawSoon() {
  frameSoon();
  timer ||= setTimeout(async () => {
    timer = 0;
    if (!holder() || document.hidden) return;
    const answer = await fetch(holder().dataset.source, { headers: { "HX-Request": "true" } }).catch(() => null);
    if (!answer?.ok) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("#minimap");
    if (!fresh || holder().contains(document.activeElement)) return;
    holder().replaceWith(fresh);
    listen();
    frame();
  }, REDRAW * (0.5 + Math.random())); // not all readers at once
}

function listen() {
  holder().addEventListener("keydown", move);
  holder().addEventListener("click", (event) => {
    const slice = event.target.closest("[data-slice]");
    if (slice && !event.ctrlKey && !event.metaKey && !event.shiftKey) scrollTo(event, slice);
  });
}

if (holder()) {
  listen();
  frame();
  window.addEventListener("scroll", frameSoon, { passive: true });
  window.addEventListener("resize", frameSoon, { passive: true });
  document.addEventListener("timeline:changed", redrawSoon);
}
