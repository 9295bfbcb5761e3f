// Many requests, or sessions, at once: boxes that survive live updates, ranges, groups, and the one question before a verdict.
// What is chosen is what the boxes say; approvals.js lets a ticked box be as it was when it was ticked.
const bar = document.querySelector("#choose");
const dialog = document.querySelector("#set");
const boxes = () => [...document.querySelectorAll("[data-choose]")];
const chosen = () => boxes().filter((box) => box.checked);
let last = ""; // the id of the box that was ticked last: a range begins there

function show() {
  const number = chosen().reduce((sum, box) => sum + Number(box.dataset.chooses ?? JSON.parse(box.value).length), 0);
  bar.classList.toggle("on", number > 0);
  document.body.classList.toggle("choosing", number > 0);
  bar.querySelector("[data-chosen-count]").textContent = number === 1 ? "1 chosen" : `${number} chosen`;
  for (const box of boxes()) box.closest("[data-row]").classList.toggle("chosen", box.checked);
}

function choose(some, wanted = true) {
  for (const box of some) box.checked = wanted;
  show();
}

// From the box that was ticked last up to this one.
function chooseUpTo(box) {
  const all = boxes();
  const [from, to] = [all.findIndex((one) => one.id === last), all.indexOf(box)].sort((one, other) => one - other);
  if (to >= 0) choose(all.slice(Math.max(from, 0), to + 1));
}

document.addEventListener("click", (event) => {
  const { target } = event;
  if (target.matches?.("[data-choose]")) {
    if (event.shiftKey && target.checked) chooseUpTo(target);
    if (target.checked) last = target.id;
    show();
    return;
  }
  const button = target.closest?.("[data-choose-all], [data-clear-chosen], [data-choose-range], [data-choose-lane], [data-fold-lane], [data-close-set]");
  if (!button) return;
  const row = document.querySelector("[data-row].selected");
  if (button.matches("[data-choose-all]")) choose(boxes(), chosen().length < boxes().length);
  else if (button.matches("[data-clear-chosen]")) choose(boxes(), false);
  else if (button.matches("[data-choose-range]")) upToSelected(row);
  else if (button.matches("[data-choose-lane]")) chooseLane(button);
  else if (button.matches("[data-fold-lane]")) row?.closest(".lane")?.toggleAttribute("open");
  else if (dialog) {
    event.preventDefault(); // without this module the link leads back to the list
    dialog.close();
  }
});

function upToSelected(row) {
  const box = row?.querySelector("[data-choose]");
  if (!box) return;
  chooseUpTo(box);
  last = box.id;
}

// A group is decided as it stands on this page: the question lists it.
function chooseLane(button) {
  const { then } = button.dataset;
  if (then) choose(boxes(), false);
  choose(button.closest(".lane").querySelectorAll("[data-choose]"));
  if (then) bar.querySelector(`[name=verdict][value=${then}]`).click();
}

document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || event.defaultPrevented || document.querySelector("dialog[open]")) return;
  if (!event.target.matches("input:not([type=checkbox]), textarea, select")) choose(boxes(), false);
});

document.addEventListener("formdata", ({ target, formData }) => {
  if (!target.matches("#arrange")) return;
  for (const [name, value] of [...formData]) if (value === "") formData.delete(name); // need not stand in the address
});

document.body.addEventListener("htmx:afterSwap", ({ target }) => {
  if (dialog && target === dialog && !dialog.open) dialog.showModal();
  show();
});

dialog?.addEventListener("close", () => dialog.replaceChildren());

document.body.addEventListener("arranged", () => choose(boxes(), false));

// The question is answered with nothing left to say.
document.body.addEventListener("htmx:afterRequest", ({ detail, target }) => {
  if (dialog?.open && detail.xhr?.status === 204 && dialog.contains(target)) dialog.close();
});

show();
