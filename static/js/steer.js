// Steering a session: Enter sends, images are dropped or pasted, the agent's commands are offered, drafts are kept.
import { REFUSED, carriesFiles, detailOf, keep, say, shelve } from "./writing.js";

const steer = document.querySelector("#steer");
const form = steer.querySelector(".steer-form");
const text = form.querySelector("textarea");
const picker = form.querySelector("input[type=file]");
const shelf = form.querySelector(".composer-files");
const offered = form.querySelector(".steer-commands");
const buttons = () => [...form.querySelectorAll("button[type=submit]")];
const buttonOf = (kind) => form.querySelector(`button[data-kind="${kind}"]`);
const draftKey = `signalbox-prompt:${form.dataset.person}:${form.dataset.steer}`;
const touch = matchMedia("(pointer: coarse)").matches;
const MOST_BYTES = 8 * 1024 * 1024;
const MOST_OFFERED = 12;

let files = [];

// What stands around the field: the server draws it, here after something was sent and in the stream's summary.
function showParts(came) {
  if (!came || steer.querySelector(":popover-open")) return; // nobody loses the menu that is open
  const open = steer.querySelector("#steer-plan")?.open;
  for (const fresh of came.querySelectorAll("#steer-now, #steer-send, #steer-way, #session-notes-now")) {
    window.Idiomorph.morph(document.getElementById(fresh.id), fresh);
  }
  const plan = document.querySelector("#steer-plan");
  if (plan && open) plan.open = true;
  steer.hidden = document.querySelector("#steer-now").hasAttribute("data-closed");
}

document.addEventListener("steer:now", (event) => showParts(event.detail));

// The field grows with what is typed; what is not sent comes back with the page.
function fit() {
  text.style.blockSize = "auto";
  text.style.blockSize = `${text.scrollHeight + 2}px`;
}

const keepDraft = () => keep(draftKey, text.value);

// Images.

function take(added) {
  if (!picker) return;
  const images = added.filter((file) => /^image\/(png|jpeg|gif|webp)$/.test(file.type));
  if (images.length < added.length) say("error", "Agents accept only images: PNG, JPEG, GIF or WebP.");
  if ([...files, ...images].reduce((sum, file) => sum + file.size, 0) > MOST_BYTES) {
    say("error", "The images of a prompt may total 8 MB.");
    return;
  }
  files = [...files, ...images];
  showFiles();
}

function showFiles() {
  shelve(shelf, files, (file) => file.name, (gone) => {
    files = files.filter((one) => one !== gone);
    showFiles();
    text.focus();
  });
}

picker?.addEventListener("change", () => {
  take([...picker.files]);
  picker.value = "";
});

document.addEventListener("paste", (event) => {
  const pasted = [...(event.clipboardData?.files ?? [])];
  if (!pasted.length || !picker) return;
  event.preventDefault();
  take(pasted);
});

document.addEventListener("dragover", (event) => {
  if (!carriesFiles(event)) return;
  event.preventDefault(); // a file that missed the field must not replace the page
  steer.classList.add("drop");
});
document.addEventListener("dragleave", (event) => event.relatedTarget || steer.classList.remove("drop"));
document.addEventListener("drop", (event) => {
  if (!carriesFiles(event)) return;
  event.preventDefault();
  steer.classList.remove("drop");
  take([...event.dataTransfer.files]);
});

// The agent's commands.

function commands() {
  const held = document.querySelector("#slash-commands");
  return held ? JSON.parse(held.textContent) : [];
}

function offer() {
  const typed = /^\/(\S*)$/.exec(text.value);
  const found = typed ? commands().filter(([name]) => name.toLowerCase().includes(typed[1].toLowerCase())) : [];
  found.sort(([one], [other]) => Number(other.startsWith(typed[1])) - Number(one.startsWith(typed[1])));
  offered.replaceChildren(...found.slice(0, MOST_OFFERED).map(choice));
  offered.hidden = found.length === 0;
  choose(0);
}

function choice([name, meaning], place) {
  const item = document.createElement("li");
  item.role = "option";
  item.id = `steer-command-${place}`;
  item.dataset.name = name;
  const word = document.createElement("strong");
  word.textContent = `/${name}`;
  const words = document.createElement("span");
  words.className = "muted clip";
  words.textContent = meaning;
  item.append(word, words);
  item.addEventListener("pointerdown", (event) => {
    event.preventDefault(); // the field keeps the focus
    pick(item);
  });
  return item;
}

const chosen = () => offered.querySelector('[aria-selected="true"]');

function choose(place) {
  const items = [...offered.children];
  items.forEach((item, at) => item.setAttribute("aria-selected", String(at === (place + items.length) % items.length)));
  if (chosen()) text.setAttribute("aria-activedescendant", chosen().id);
  else text.removeAttribute("aria-activedescendant");
  chosen()?.scrollIntoView({ block: "nearest" });
}

function pick(item) {
  text.value = `/${item.dataset.name} `;
  offered.hidden = true;
  text.focus();
  keepDraft();
}

function keyInOffer(event) {
  const at = [...offered.children].indexOf(chosen());
  if (event.key === "ArrowDown") choose(at + 1);
  else if (event.key === "ArrowUp") choose(at - 1);
  else if (event.key === "Escape") offered.hidden = true;
  else if (event.key === "Tab" || event.key === "Enter") pick(chosen());
  else return false;
  event.preventDefault();
  event.stopPropagation();
  return true;
}

// Sending.

// What Enter does: images and the agent's commands go as a prompt, all else by the first button.
function defaultButton() {
  const isPrompt = files.length || (text.value.startsWith("/") && commands().length);
  return (isPrompt && buttonOf("prompt")) || buttons()[0];
}

async function post(url, body) {
  const headers = { "HX-Request": "true", "X-CSRFToken": form.elements.csrfmiddlewaretoken.value };
  document.dispatchEvent(new CustomEvent("proof:add", { detail: headers }));
  const answer = await fetch(url, { method: "POST", body, headers, credentials: "same-origin" });
  const words = await answer.text();
  if (answer.ok) return words;
  const why = reasonOf(answer, words);
  const ways = answer.headers.get("Signalbox-Confirm");
  if (ways) {
    document.dispatchEvent(new CustomEvent("proof:wanted", { detail: { message: why, ways } }));
  }
  throw new Error(why);
}

function reasonOf(answer, words) {
  const detail = detailOf(words);
  if (detail) return detail;
  return answer.status === 403 ? REFUSED : `Signalbox refused it (${answer.status}).`;
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const words = text.value.trim();
  const button = event.submitter ?? defaultButton();
  if ((!words && !files.length) || !button || button.disabled) return;
  const body = new FormData();
  body.set("text", words);
  for (const file of files) body.append("files", file, file.name);
  for (const other of buttons()) other.disabled = true;
  try {
    const came = document.createElement("template");
    came.innerHTML = await post(button.hasAttribute("formaction") ? button.formAction : form.action, body);
    text.value = "";
    files = [];
    showFiles();
    keepDraft();
    fit();
    showParts(came.content);
  } catch (problem) {
    say("error", problem instanceof TypeError ? "Signalbox cannot be reached. It was not sent." : problem.message);
  } finally {
    for (const other of buttons()) other.disabled = false;
    text.focus();
  }
});

text.addEventListener("keydown", (event) => {
  if (!offered.hidden && keyInOffer(event)) return;
  if (event.key !== "Enter" || event.shiftKey || event.isComposing || touch) return;
  event.preventDefault();
  if (buttons().length) form.requestSubmit(defaultButton());
});
text.addEventListener("input", () => {
  keepDraft();
  fit();
  offer();
});
text.addEventListener("blur", () => {
  offered.hidden = true;
});

try {
  if (!text.value) text.value = localStorage.getItem(draftKey) ?? "";
} catch {
  // no drafts where the browser keeps none
}
if (text.value) fit();
