// Single keys: j/k walk [data-row] inside [data-rows] (but [data-passed]), Enter opens the row's [data-open], / searches,
// ? helps, g and a letter open the page of the rail's [data-go] (g twice presses what has the key g), and any other letter
// presses the [data-key] button of the selected row or, failing that, of the page.
// A person can switch them off (WCAG 2.1.4) in the help dialog.
const help = document.querySelector("#keys");
const toggle = document.querySelector("[data-keys-switch]");
const off = "signalbox-keys-off";

const rows = () => [...document.querySelectorAll("[data-rows] [data-row]:not([data-passed])")].filter((row) => row.offsetParent);
const selected = () => document.querySelector("[data-row].selected");
const isTyping = (target) => target.closest("input:not([type=checkbox], [type=radio]), textarea, select, [contenteditable]");

function mark(row) {
  selected()?.classList.remove("selected");
  row.classList.add("selected");
  row.dispatchEvent(new CustomEvent("row-selected", { bubbles: true }));
}

function select(row) {
  mark(row);
  row.scrollIntoView({ block: "nearest" });
  const link = row.querySelector("[data-open]") ?? row.querySelector("a, button");
  if (link) link.focus({ preventScroll: true });
}

function walk(step) {
  const all = rows();
  if (!all.length) return;
  const current = selected();
  const side = step > 0 ? Node.DOCUMENT_POSITION_FOLLOWING : Node.DOCUMENT_POSITION_PRECEDING;
  const ahead = current ? all.filter((row) => current.compareDocumentPosition(row) & side) : all;
  const next = ahead.at(step > 0 ? 0 : -1);
  if (next) select(next);
}

function press(key) {
  const named = `[data-key="${CSS.escape(key)}"]:not(:disabled)`;
  const row = selected();
  const inRow = row?.querySelector(named);
  const onPage = [...document.querySelectorAll(named)].find((button) => !button.closest("[data-row]"));
  const button = inRow ?? onPage;
  button?.click();
  return Boolean(button);
}

function search() {
  const field = document.querySelector("[data-search]");
  field?.focus();
  field?.select?.();
  return Boolean(field);
}

// After g the next key never decides anything, however late it comes: somebody may have meant g and a.
const isGoing = () => document.body.classList.contains("going"); // the rail then shows the letters
const stopGoing = () => document.body.classList.remove("going");

function go(key) {
  stopGoing();
  if (key === "g") press("g");
  else if (key !== "Escape") document.querySelector(`.rail [data-go="${CSS.escape(key)}"]`)?.click();
}

const actions = {
  j: () => (walk(1), true),
  k: () => (walk(-1), true),
  "/": search,
  "?": () => (help?.showModal(), true),
  g: () => (document.body.classList.add("going"), true),
  Enter: () => {
    const link = document.activeElement === document.body && selected()?.querySelector("[data-open]");
    if (link) link.click();
    return Boolean(link);
  },
};

document.addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (event.key === "Escape" && isTyping(event.target) && !event.target.closest("dialog")) {
    event.target.blur();
    return;
  }
  if (event.repeat && !"jk".includes(event.key)) return; // a held key must not decide twice
  if (isTyping(event.target) || document.querySelector("dialog[open]") || localStorage.getItem(off)) return;
  if (isGoing() && (event.key.length === 1 || event.key === "Escape")) {
    go(event.key);
    event.preventDefault();
    return;
  }
  const done = actions[event.key] ? actions[event.key]() : event.key.length === 1 && press(event.key);
  if (done) event.preventDefault();
});

document.addEventListener("click", (event) => {
  stopGoing();
  const row = event.target.closest("[data-row]");
  if (row && row !== selected()) mark(row);
});

for (const element of document.querySelectorAll("[data-needs-script]")) element.hidden = false;
if (toggle) {
  toggle.checked = !localStorage.getItem(off);
  toggle.addEventListener("change", () => {
    if (toggle.checked) localStorage.removeItem(off);
    else localStorage.setItem(off, "1");
  });
}
