// The sessions list: filters that apply as they are chosen, children that unfold, and a count of what is new, so
// that nothing moves under the reader's eyes.
const form = document.querySelector("#filters");
const arrivals = document.querySelector("#arrivals");
let arrived = 0;

// On a wide screen a filter applies as it is chosen; on a narrow one several are chosen, and then applied together.
const narrow = matchMedia("(width < 48rem)");
const fold = form?.querySelector("[data-fold]");
const applies = () => !(fold && narrow.matches);
const showSubmit = () => form?.querySelector("[data-submit]")?.toggleAttribute("hidden", applies());

showSubmit();
narrow.addEventListener("change", showSubmit);
form?.addEventListener("change", ({ target }) => {
  if (target !== fold && applies() && !target.matches("[type=search]")) form.requestSubmit();
});
// An empty field need not stand in the URL.
form?.addEventListener("formdata", (event) => {
  for (const [name, value] of [...event.formData]) if (value === "") event.formData.delete(name);
});

document.body.addEventListener("live:sessions", ({ detail }) => {
  if (detail.op !== "insert" || !arrivals) return;
  arrived += detail.count ?? 1;
  arrivals.querySelector("[data-count]").textContent = arrived.toLocaleString();
  arrivals.hidden = false;
});
document.body.addEventListener("live:reset", () => location.reload());

// What says `data-follows` follows the events; it alone is replaced, so that no row moves. The stream brings a row as the
// server has drawn it for everybody, at most every two seconds. What it does not bring (after a break) is fetched.
const ROW_LATE = 4000; // milliseconds after which a row that the stream has not brought is fetched
const busy = new Set(); // sessions whose rows are to be fetched
let following = 0;

const rowOf = (id) => document.querySelector(`tr[data-session-row="${CSS.escape(id)}"]`);

document.body.addEventListener("live:events", ({ detail }) => {
  if (!rowOf(detail.parent)) return;
  busy.add(detail.parent);
  following ||= setTimeout(follow, ROW_LATE * (1 + Math.random()));
});

document.body.addEventListener("live:session_row", ({ detail }) => {
  if (!detail.row) return;
  busy.delete(detail.key);
  show(detail.row);
});

async function follow() {
  following = 0;
  if (!busy.size) return;
  const query = new URLSearchParams([...busy].map((id) => ["id", id]));
  busy.clear();
  const answer = await fetch(`${document.querySelector("#sessions").dataset.rowsUrl}?${query}`, { headers: { "HX-Request": "true" } });
  if (answer.ok) show(await answer.text());
}

function show(html) {
  const holder = document.createElement("template");
  holder.innerHTML = html;
  for (const fresh of holder.content.querySelectorAll("tr[data-session-row]")) {
    const row = rowOf(fresh.dataset.sessionRow);
    for (const part of fresh.querySelectorAll("[data-follows]")) {
      row?.querySelector(`[data-follows="${part.dataset.follows}"]`)?.replaceWith(part);
    }
  }
}

// That a session has become idle nobody tells: it is silence.
const IDLE_LOOK = 60_000;
setInterval(() => {
  if (document.hidden) return;
  for (const cell of document.querySelectorAll('td[data-state="running"]')) busy.add(cell.closest("tr").dataset.sessionRow);
  if (busy.size) follow();
}, IDLE_LOOK);

document.addEventListener("click", async (event) => {
  const link = event.target.closest("a[data-children]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  const row = link.closest("tr");
  const open = link.getAttribute("aria-expanded") === "true";
  link.setAttribute("aria-expanded", String(!open));
  if (open) foldChildren(row.dataset.sessionRow);
  else await unfold(row, link.dataset.children);
});

function foldChildren(parent) {
  for (const child of document.querySelectorAll(`tr[data-child-of="${CSS.escape(parent)}"]`)) {
    if (child.dataset.sessionRow) foldChildren(child.dataset.sessionRow);
    child.remove();
  }
}

async function unfold(row, url) {
  const answer = await fetch(url, { headers: { "HX-Request": "true" } });
  if (!answer.ok) return;
  row.insertAdjacentHTML("afterend", await answer.text());
}

// The stream draws a row for everybody: who looks has pinned it, chosen it, unfolded it, or sees it under its parent.
new MutationObserver((records) => {
  for (const { addedNodes, removedNodes } of records) {
    for (const before of removedNodes) {
      const id = before.dataset?.sessionRow;
      const after = id && [...addedNodes].find((node) => node.dataset?.sessionRow === id);
      if (after) keep(before, after);
    }
  }
}).observe(document.querySelector("#sessions") ?? document.body, { childList: true, subtree: true });

function keep(before, after) {
  for (const name of ["child", "pinned", "chosen", "selected"]) after.classList.toggle(name, before.classList.contains(name));
  if (before.dataset.childOf) after.dataset.childOf = before.dataset.childOf;
  for (const [selector, name] of [["[data-children]", "aria-expanded"], [".pin", "aria-pressed"]]) {
    const value = before.querySelector(selector)?.getAttribute(name);
    if (value) after.querySelector(selector)?.setAttribute(name, value);
  }
  const [box, fresh] = [before, after].map((row) => row.querySelector("[data-choose]"));
  if (box && fresh) fresh.checked = box.checked;
}

// Sorting and paging change the address alone: what leads back here, saves it or exports it follows.
document.body.addEventListener("htmx:pushedIntoHistory", () => {
  for (const field of document.querySelectorAll("#sessions [name=back]")) field.value = location.search.slice(1);
  for (const link of document.querySelectorAll("#sessions a[data-follows-query]")) link.search = location.search;
});
