// The waterfall and the rows beside it agree: pointing at one marks the other; the bars follow as rows come and go.
// By keyboard it is one stop: `w` goes to the bar of the row one is at, arrows from bar to bar, Enter to the row,
// Escape back. Where there is no room beside the rows, `w` and its button show and hide it above them.
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

let timer = 0;

function redrawSoon() {
  timer ||= setTimeout(async () => {
    timer = 0;
    const rows = entries()?.querySelectorAll(":scope > [data-place]");
    if (!rows?.length || !holder.offsetParent) return;
    const url = new URL(holder.dataset.source, window.location.href);
    url.searchParams.set("first", rows[0].dataset.place);
    url.searchParams.set("last", rows[rows.length - 1].dataset.place);
    const answer = await fetch(url, { headers: { "HX-Request": "true" } });
    if (!answer.ok) return;
    const held = holder.contains(document.activeElement) ? document.activeElement.dataset?.bar : null;
    holder.innerHTML = await answer.text();
    if (held) hold(barOf(held) ?? bars()[0]);
  }, SOON);
}

// --- by keyboard ------------------------------------------------------------------------------------------------

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
