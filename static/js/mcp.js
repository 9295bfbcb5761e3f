// What the pages about MCP need: their dialog opens when htmx has filled it, selects submit their form,
// a sheet shows which of its lines differ from what stands, and the end of a grant is written in the reader's own zone
// or picked from a calendar.
const dialog = document.querySelector("#mcp-dialog");

document.body.addEventListener("htmx:afterSwap", (event) => {
  if (event.detail.target?.id === "mcp-dialog-body" && !dialog.open) dialog.showModal();
});

dialog?.addEventListener("click", (event) => {
  if (!event.target.closest("[data-dialog-close]")) return;
  event.preventDefault();
  dialog.close();
});

for (const form of document.querySelectorAll("[data-auto-submit]")) {
  form.addEventListener("change", () => form.requestSubmit());
}

const sheet = document.querySelector("#sheet-form");
sheet?.addEventListener("change", (event) => {
  const line = event.target.closest(".sheet-line");
  if (!line) return;
  const stands = [...line.querySelectorAll("input[type=radio]")].every((one) => one.checked === one.defaultChecked);
  line.classList.toggle("edited", !stands || Boolean(line.querySelector("input[type=checkbox]:checked")));
});

const zone = new Intl.DateTimeFormat().resolvedOptions().timeZone;

function prepareEnds(root) {
  for (const field of root.querySelectorAll("[data-own-zone]")) field.value = zone || "UTC";
  for (const button of root.querySelectorAll("[data-pick-end]")) button.hidden = false;
}

prepareEnds(document);
document.body.addEventListener("htmx:load", (event) => prepareEnds(event.target));

document.body.addEventListener("click", (event) => {
  const button = event.target.closest("[data-pick-end]");
  if (!button) return;
  const now = new Date();
  const picker = button.nextElementSibling;
  picker.min = new Date(now - now.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
  picker.showPicker();
});

document.body.addEventListener("change", (event) => {
  if (!event.target.matches(".grant-end-picker") || !event.target.value) return;
  const words = event.target.closest(".grant-end").querySelector("input[list]");
  words.value = event.target.value.replace("T", " ");
  words.dispatchEvent(new Event("input", { bubbles: true }));
});
