// The waterfall and the rows beside it agree: pointing at one marks the other; the bars follow as rows come and go.
// By keyboard it is one stop: `w` goes to the bar of the row one is at, arrows from bar to bar, Enter to the row,
// Escape back. Where there is no room beside the rows, `w` and its button show and hide it above them.
import { length } from "./time-words.js";

const holder = document.querySelector("#waterfall");
const entries = () => document.querySelector("#entries");
const SOON = 400;

function mark(id, on) {
  document.getElementById(id)?.classList.toggle("pointed", on);
  holder.querySelector(`[data-bar="${CSS.escape(id)}"]`)?.classList.toggle("pointed", on);
}

function pointed(event, on) {
  const bar = event.target.closest?.("[data-bar]");
  const row = event.target.closest?.(".entry[id]");
  const id = bar?.dataset.bar ?? row?.id;
  if (!id) return;
  mark(id, on);
  if (row && on) keepInSight(holder.querySelector(`[data-bar="${CSS.escape(id)}"]`));
}

// The bars scroll on their own where they are taller than the screen.
function keepInSight(bar) {
  const rect = bar?.querySelector(".span");
  if (!rect || holder.scrollHeight <= holder.clientHeight) return;
  const y = Number(rect.getAttribute("y"));
  if (y < holder.scrollTop + 20 || y > holder.scrollTop + holder.clientHeight - 40) {
    holder.scrollTo({ top: y - holder.clientHeight / 2, behavior: "smooth" });
  }
}

// Drawing: the same rules as dashboard/timeline/waterfall.py, which draws the first page.

const TOP = 20, ROW = 9, LEAST_WIDTH = 0.6, MOST_FOLDS = 20, FOLD_SHARE = 0.06, LEAST_FOLD = 2_000_000;

function spans() {
  const now = Date.now() * 1000;
  return [...entries().querySelectorAll(":scope > [data-to]")].map((row) => {
    const { place, to, goesOn, barClass, barLabel } = row.dataset;
    return {
      id: row.id,
      from: Number(place.split(".")[0]),
      to: goesOn === undefined ? Number(to) : Math.max(Number(to), now),
      cssClass: barClass,
      label: barLabel,
    };
  });
}

function busyStretches(all) {
  const merged = [];
  for (const { from, to } of all.toSorted((one, other) => one.from - other.from || one.to - other.to)) {
    const last = merged.at(-1);
    if (last && from <= last[1]) last[1] = Math.max(last[1], to);
    else merged.push([from, to]);
  }
  return merged;
}

// Time to percent, with idle stretches folded.
function scaleOf(all) {
  const busy = busyStretches(all);
  const edges = [busy[0][0]], offsets = [0], folded = [];
  const most = Math.max(LEAST_FOLD, Math.floor(busy.reduce((sum, [from, to]) => sum + to - from, 0) * FOLD_SHARE));
  busy.forEach(([from, to], number) => {
    const following = busy[number + 1]?.[0] ?? to;
    edges.push(to, following);
    offsets.push(offsets.at(-1) + to - from);
    if (following - to > most) folded.push([offsets.at(-1) + Math.floor(most / 2), following - to]);
    offsets.push(offsets.at(-1) + Math.min(following - to, most));
  });
  const total = Math.max(offsets.at(-1), 1);
  const percent = (at) => {
    const beyond = edges.findIndex((edge) => edge > at);
    const right = Math.min(Math.max(beyond < 0 ? edges.length : beyond, 1), edges.length - 1);
    const [first, last] = [edges[right - 1], edges[right]];
    const share = last > first ? Math.min(Math.max((at - first) / (last - first), 0), 1) : 0;
    return (100 * (offsets[right - 1] + share * (offsets[right] - offsets[right - 1]))) / total;
  };
  return { percent, folds: folded.map(([at, gap]) => ({ x: (100 * at) / total, gap })) };
}

const rounded = (number) => Math.round(number * 100) / 100;

function element(name, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function titled(text) {
  const title = element("title", {});
  title.textContent = text;
  return title;
}

function barFor(span, number, percent) {
  const y = TOP + number * ROW;
  const x = Math.min(percent(span.from), 100 - LEAST_WIDTH);
  const width = Math.max(percent(span.to) - x, LEAST_WIDTH);
  const link = { href: `#${span.id}`, "data-bar": span.id, "aria-label": span.label, tabindex: number ? -1 : 0 };
  return element(
    "a",
    link,
    titled(span.label),
    element("rect", { class: "hit", x: 0, width: "100%", y, height: 9 }),
    element("rect", { class: `span ${span.cssClass}`, x: `${rounded(x)}%`, width: `${rounded(width)}%`, y: y + 2, height: 5, rx: 2 }),
  );
}

function foldFor({ x, gap }, height) {
  const line = element("line", { x1: `${rounded(x)}%`, x2: `${rounded(x)}%`, y1: 3, y2: height });
  return element("g", { class: "idle" }, titled(`${length(gap / 1e6)} without events`), line);
}

function draw() {
  const all = entries() ? spans() : [];
  const picture = holder.querySelector("svg");
  if (!all.length || !picture || !holder.offsetParent) return;
  const { percent, folds } = scaleOf(all);
  const height = TOP + all.length * ROW + 4;
  picture.setAttribute("height", height);
  picture.replaceChildren(
    element("line", { class: "axis", x1: 0, x2: "100%", y1: 8, y2: 8 }),
    ...folds.slice(0, folds.length > MOST_FOLDS ? 0 : folds.length).map((fold) => foldFor(fold, height)),
    ...all.map((span, number) => barFor(span, number, percent)),
  );
  for (const part of [picture, holder.querySelector(".waterfall-head")]) part.toggleAttribute("hidden", false);
  const whole = Math.max(...all.map((span) => span.to)) - all[0].from;
  holder.querySelector("[data-whole]").textContent = length(whole / 1e6);
}

let timer = 0;

function redrawSoon() {
  timer ||= setTimeout(() => {
    timer = 0;
    const held = holder.contains(document.activeElement) ? document.activeElement.dataset?.bar : null;
    draw();
    if (held) hold(barOf(held) ?? bars()[0]);
  }, SOON);
}

// By keyboard.

const opener = document.querySelector("[data-waterfall]");
const bars = () => [...holder.querySelectorAll("[data-bar]")];
const barOf = (id) => holder.querySelector(`[data-bar="${CSS.escape(id)}"]`);

function hold(bar) {
  if (!bar) return;
  for (const other of holder.querySelectorAll('[data-bar][tabindex="0"]')) other.setAttribute("tabindex", "-1");
  bar.setAttribute("tabindex", "0");
  bar.focus();
}

function rowInSight() {
  const top = document.querySelector("#timeline-bar").getBoundingClientRect().bottom;
  const all = [...entries().querySelectorAll(":scope > [data-place]")];
  return all.find((row) => row.classList.contains("selected")) ?? all.find((row) => row.getBoundingClientRect().bottom > top);
}

function toggle(event) {
  event.preventDefault();
  if (holder.classList.contains("shown") && getComputedStyle(opener).getPropertyValue("--beside") !== "1") {
    leave();
    return;
  }
  const row = rowInSight();
  holder.classList.add("shown");
  redrawSoon();
  hold((row && barOf(row.id)) ?? bars()[0]);
}

function leave() {
  holder.classList.remove("shown");
  opener.focus({ preventScroll: true });
}

function move(event) {
  const all = bars();
  const at = all.indexOf(event.target.closest("[data-bar]"));
  const next = { ArrowDown: at + 1, ArrowRight: at + 1, ArrowUp: at - 1, ArrowLeft: at - 1, Home: 0, End: all.length - 1 }[event.key];
  if (event.key === "Escape") leave();
  else if (at < 0 || next === undefined) return;
  else hold(all[Math.min(Math.max(next, 0), all.length - 1)]);
  event.preventDefault();
}

// The link's own jump opens the row; who pressed Enter goes on from there.
function goToRow(event) {
  const bar = event.target.closest("[data-bar]");
  if (bar && event.detail === 0) {
    requestAnimationFrame(() => document.getElementById(bar.dataset.bar)?.querySelector("[data-open]")?.focus({ preventScroll: true }));
  }
}

if (holder) {
  opener?.addEventListener("click", toggle);
  holder.addEventListener("keydown", move);
  holder.addEventListener("click", goToRow);
  document.addEventListener("timeline:changed", redrawSoon);
  for (const [name, on] of [["mouseover", true], ["mouseout", false], ["focusin", true], ["focusout", false]]) {
    document.addEventListener(name, (event) => pointed(event, on));
  }
}
