// What the pages about MCP need: their dialog opens when htmx has filled it, selects submit their form,
// and a sheet shows which of its lines differ from what stands.
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
