// What the fields share in which people write to agents: drafts, files to send, toasts, reasons of a refusal.

export const REFUSED = "You are not allowed to do this, or you are signed out. Reload the page.";

export function say(level, words) {
  document.body.dispatchEvent(new CustomEvent("toast", { detail: { level, text: words } }));
}

// Keeps a draft under a key; one that is blank is forgotten.
export function keep(key, draft) {
  try {
    if (draft.trim()) localStorage.setItem(key, draft);
    else localStorage.removeItem(key);
  } catch {
    // private windows may refuse; the draft then lives as long as the page
  }
}

// The reason in our JSON; nothing where the answer is a page.
export function detailOf(body) {
  try {
    const { detail } = JSON.parse(body);
    return typeof detail === "string" ? detail : "";
  } catch {
    return "";
  }
}

export const carriesFiles = (event) => [...(event.dataTransfer?.types ?? [])].includes("Files");

// Shows the files that wait to be sent in a list, each with a button that takes it out.
export function shelve(list, files, labelOf, remove) {
  for (const picture of list.querySelectorAll("img")) URL.revokeObjectURL(picture.src);
  list.replaceChildren(...files.map((file) => shelved(file, labelOf(file), remove)));
  list.hidden = files.length === 0;
}

function shelved(file, label, remove) {
  const item = document.createElement("li");
  if (/^image\/(png|jpeg|gif|webp|avif)$/.test(file.type)) {
    const picture = document.createElement("img");
    picture.src = URL.createObjectURL(file);
    picture.alt = "";
    item.append(picture);
  }
  const name = document.createElement("span");
  name.className = "clip";
  name.textContent = label;
  const button = document.createElement("button");
  button.type = "button";
  button.className = "button ghost small";
  button.textContent = "Remove";
  button.setAttribute("aria-label", `Remove ${file.name}`);
  button.addEventListener("click", () => remove(file));
  item.append(name, button);
  return item;
}
