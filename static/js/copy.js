// Buttons that copy: data-copy="text", or data-copy-from="#id". Hidden where the browser cannot (plain http).
const can = Boolean(navigator.clipboard);

function showIn(root) {
  if (can) for (const button of root.querySelectorAll("[data-copy], [data-copy-from]")) button.hidden = false;
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy], [data-copy-from]");
  if (!button) return;
  const source = button.dataset.copyFrom && document.querySelector(button.dataset.copyFrom);
  const text = source ? (source.value ?? source.textContent) : button.dataset.copy;
  let detail = { level: "success", text: "Copied" };
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    detail = { level: "error", text: "The browser did not allow copying." };
  }
  document.body.dispatchEvent(new CustomEvent("toast", { detail }));
});

showIn(document);
document.body.addEventListener("htmx:load", (event) => showIn(event.target));
