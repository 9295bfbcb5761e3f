// The order of the rules, in which the first that matches decides: by dragging a card, or with its two buttons.
"use strict";

const list = document.querySelector("#rule-list .rules");
const rows = () => [...list.querySelectorAll("[data-rule]:has([data-move])")];
let dragged = null;

// Write the places into the fields that are sent, and let the page test the new order.
function number() {
  for (const [place, row] of rows().entries()) {
    row.querySelector('[name$="-ORDER"]').value = place + 1;
    row.querySelector(".rule-number").textContent = place + 1;
    for (const button of row.querySelectorAll("[data-move]")) {
      button.setAttribute("aria-label", `Move rule ${place + 1} ${button.dataset.move < 0 ? "up" : "down"}`);
    }
  }
  list.closest("form").dispatchEvent(new Event("reordered", { bubbles: true }));
}

function move(row, step) {
  const all = rows();
  const other = all[all.indexOf(row) + step];
  if (!other) return;
  if (step < 0) other.before(row);
  else other.after(row);
  number();
}

if (list) {
  for (const row of rows()) {
    row.querySelector("[data-needs-script]").hidden = false;
    row.querySelector(".rule-head").draggable = true;
  }
  list.addEventListener("click", (event) => {
    const button = event.target.closest("[data-move]");
    if (!button) return;
    move(button.closest("[data-rule]"), Number(button.dataset.move));
    button.focus();
  });
  list.addEventListener("dragstart", (event) => {
    dragged = event.target.closest?.("[data-rule]") ?? null;
    dragged?.classList.add("dragged");
  });
  list.addEventListener("dragover", (event) => {
    const over = event.target.closest("[data-rule]");
    if (!dragged || !over || over === dragged || !rows().includes(over)) return;
    event.preventDefault();
    const box = over.getBoundingClientRect();
    if (event.clientY < box.top + box.height / 2) over.before(dragged);
    else over.after(dragged);
  });
  list.addEventListener("dragend", () => {
    dragged?.classList.remove("dragged");
    if (dragged) number();
    dragged = null;
  });
}
