// Buttons that copy: data-copy="text", data-copy-from="#id", or data-copy-link="/path", an address that others can open. On
// the page's own such button that is the address of the selected row. Hidden where the browser cannot (plain http).
const can = Boolean(navigator.clipboard);
const BUTTONS = "[data-copy], [data-copy-from], [data-copy-link]";

function showIn(root) {
  if (can) for (const button of root.querySelectorAll(BUTTONS)) button.hidden = false;
}

function textOf(button) {
  const { copy, copyFrom, copyLink } = button.dataset;
  if (copyLink) {
    const selected = button.closest("[data-row]") ? null : document.querySelector("[data-row].selected [data-copy-link]");
    return new URL(selected?.dataset.copyLink ?? copyLink, window.location.href).href;
  }
  const source = copyFrom && document.querySelector(copyFrom);
  return source ? (source.value ?? source.textContent) : copy;
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest(BUTTONS);
  if (!button) return;
  let detail = { level: "success", text: button.dataset.copyLink ? "Link copied" : "Copied" };
  try {
    await navigator.clipboard.writeText(textOf(button));
  } catch {
    detail = { level: "error", text: "The browser did not allow copying." };
  }
  document.body.dispatchEvent(new CustomEvent("toast", { detail }));
});

showIn(document);
document.body.addEventListener("htmx:load", (event) => showIn(event.target));
document.addEventListener("timeline:changed", () => showIn(document));
