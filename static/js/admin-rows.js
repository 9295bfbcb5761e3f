// More empty rows in the admin's lists of rows (templates/admin/_rows.html). Without it, saving brings two more.
"use strict";

function addRow(group) {
  const total = group.querySelector(`[name="${group.dataset.rowGroup}-TOTAL_FORMS"]`);
  const row = group.querySelector("template").content.cloneNode(true);
  for (const element of row.querySelectorAll("[name], [id], [for]")) {
    for (const attribute of ["name", "id", "for"]) {
      const value = element.getAttribute(attribute);
      if (value) element.setAttribute(attribute, value.replace("__prefix__", total.value));
    }
  }
  group.querySelector(".rows-list").append(row);
  total.value = Number(total.value) + 1;
  group.querySelector(".row-line:last-child textarea, .row-line:last-child input:not([type=hidden])").focus();
}

document.addEventListener("DOMContentLoaded", () => {
  for (const group of document.querySelectorAll("[data-row-group]")) {
    const button = group.querySelector("[data-add-row]");
    button.hidden = false;
    button.addEventListener("click", () => addRow(group));
  }
});
