// The command palette: Ctrl or Command and K opens it. Its field is a combobox (WAI-ARIA): the focus stays in it, and
// aria-activedescendant says which of the server's results is chosen.
const dialog = document.querySelector("#palette");
const isApple = /Mac|iPhone|iPad/.test(navigator.platform);

for (const key of document.querySelectorAll("[data-command-key]")) key.textContent = isApple ? "⌘ K" : "Ctrl K";

if (dialog) {
  const field = dialog.querySelector("[role=combobox]");
  const results = dialog.querySelector("[role=listbox]");
  const problem = dialog.querySelector("[data-palette-problem]");
  const options = () => [...results.querySelectorAll("[role=option]")];
  const chosen = () => results.querySelector("[aria-selected=true]");

  const choose = (option) => {
    chosen()?.setAttribute("aria-selected", "false");
    if (option) {
      option.setAttribute("aria-selected", "true");
      option.scrollIntoView({ block: "nearest" });
      field.setAttribute("aria-activedescendant", option.id);
    } else field.removeAttribute("aria-activedescendant");
  };

  const walk = (step) => {
    const all = options();
    const here = all.indexOf(chosen());
    if (all.length) choose(all[(here + step + all.length) % all.length]);
  };

  document.addEventListener("keydown", (event) => {
    const isCommand = isApple ? event.metaKey && !event.ctrlKey : event.ctrlKey && !event.metaKey;
    if (!isCommand || event.altKey || event.shiftKey || event.key.toLowerCase() !== "k") return;
    const other = document.querySelector("dialog[open]");
    if (other && other !== dialog) return; // a question must be answered first
    event.preventDefault();
    if (other) dialog.close();
    else dialog.showModal();
  });

  // Opened by a key or by a button (dialogs.js): what it found last time may be gone.
  new MutationObserver(() => {
    if (!dialog.open) return;
    field.select();
    field.dispatchEvent(new CustomEvent("palette:open"));
  }).observe(dialog, { attributeFilter: ["open"] });

  field.addEventListener("keydown", (event) => {
    if (event.isComposing) return;
    if (event.key === "ArrowDown") walk(1);
    else if (event.key === "ArrowUp") walk(-1);
    else if (event.key === "Enter") chosen()?.click();
    else return;
    event.preventDefault();
  });

  results.addEventListener("click", (event) => {
    // A page that is open already only scrolls to the place: the dialog must not cover it.
    if (event.target.closest("[role=option]") && !event.ctrlKey && !event.metaKey) dialog.close();
  });

  results.addEventListener("htmx:afterSwap", () => {
    const all = options();
    problem.hidden = true;
    field.setAttribute("aria-expanded", String(all.length > 0));
    choose(all[0]);
    dialog.querySelector("[data-palette-count]").textContent = `${all.length} result${all.length === 1 ? "" : "s"}`;
  });
  for (const failure of ["htmx:sendError", "htmx:responseError"])
    field.addEventListener(failure, () => { problem.hidden = false; });
}
