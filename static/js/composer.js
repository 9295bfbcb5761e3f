// The composer: Enter sends, files are dropped or pasted, drafts are kept, what failed can be tried again.
// A message stands in the thread as said only when the server has answered that it is committed.
import { REFUSED, carriesFiles, detailOf, keep, say, shelve } from "./writing.js";

const chat = document.querySelector("[data-chat]");
const form = chat.querySelector(".composer");
const text = form.querySelector("textarea");
const picker = form.querySelector("input[type=file]");
const shelf = form.querySelector(".composer-files");
const drop = chat.querySelector(".chat-drop");
const list = chat.querySelector(".chat-messages");
const blank = document.querySelector("#pending-message");
const most = Number(form.dataset.mostBytes);
const draftKey = `signalbox-draft:${chat.dataset.person}:${chat.dataset.chat}`;
const touch = matchMedia("(pointer: coarse)").matches;

let files = [];
const underWay = new Set();

function keepDraft() {
  // What is not committed yet is still a draft: it comes back if the page goes away.
  const unsent = [...underWay].map((one) => one.text).filter(Boolean);
  keep(draftKey, [...unsent, text.value].join("\n").trim());
}

function size(bytes) {
  return bytes < 1024 ? `${bytes} B` : bytes < 1_048_576 ? `${(bytes / 1024).toFixed(1)} KB` : `${(bytes / 1_048_576).toFixed(1)} MB`;
}

function take(added) {
  const total = [...files, ...added].reduce((sum, file) => sum + file.size, 0);
  if (total > most) {
    say("error", `The files of one message may total ${size(most)}. These total ${size(total)}.`);
    return;
  }
  if (files.length + added.length > 19) {
    say("error", "A message takes at most 19 files.");
    return;
  }
  files = [...files, ...added];
  showFiles();
}

const labelOf = (file) => `${file.name} (${size(file.size)})`;

function showFiles() {
  shelve(shelf, files, labelOf, (gone) => {
    files = files.filter((one) => one !== gone);
    showFiles();
    text.focus();
  });
}

function pending(message) {
  const item = blank.content.firstElementChild.cloneNode(true);
  const names = message.files.map(labelOf).join(", ");
  item.querySelector("[data-text]").textContent = [message.text, names].filter(Boolean).join("\n");
  item.querySelector("[data-retry]").addEventListener("click", () => send(message));
  item.querySelector("[data-discard]").addEventListener("click", () => forget(message));
  item.querySelector("[data-edit]").addEventListener("click", () => {
    text.value = [message.text, text.value].filter(Boolean).join("\n");
    files = [...message.files, ...files];
    showFiles();
    forget(message);
    text.focus();
  });
  return item;
}

function forget(message) {
  underWay.delete(message);
  message.item.remove();
  keepDraft();
}

function send(message) {
  const { item } = message;
  const bar = item.querySelector("progress");
  item.querySelector("[data-failed]").hidden = true;
  item.querySelector("[data-state]").textContent = "Sending…";
  const body = new FormData();
  body.set("id", message.id);
  body.set("text", message.text);
  for (const file of message.files) body.append("files", file, file.name);
  const request = new XMLHttpRequest();
  request.open("POST", form.action);
  const headers = { "HX-Request": "true", "X-CSRFToken": form.elements.csrfmiddlewaretoken.value };
  document.dispatchEvent(new CustomEvent("proof:add", { detail: headers }));
  for (const [name, value] of Object.entries(headers)) request.setRequestHeader(name, value);
  request.upload.addEventListener("progress", (event) => {
    bar.hidden = message.files.length === 0;
    if (event.lengthComputable) bar.value = event.loaded / event.total;
  });
  request.addEventListener("load", () => answered(message, request));
  request.addEventListener("error", () => failed(message, "Signalbox cannot be reached."));
  request.send(body);
}

function answered(message, request) {
  const parsed = document.createElement("template");
  if (request.status === 200) parsed.innerHTML = request.responseText;
  const said = parsed.content.querySelector(".chat-message");
  const ways = request.getResponseHeader("Signalbox-Confirm");
  if (ways) {
    document.dispatchEvent(new CustomEvent("proof:wanted", { detail: { message: reasonOf(request), ways } }));
  }
  if (!said) {
    failed(message, reasonOf(request));
    return;
  }
  underWay.delete(message);
  keepDraft();
  const there = document.getElementById(said.id); // the stream may have been faster
  if (there || "part" in list.dataset) message.item.remove();
  else message.item.replaceWith(said);
  window.htmx.process(list);
  if ("part" in list.dataset) location.assign(location.pathname);
}

function reasonOf(request) {
  const detail = detailOf(request.responseText);
  if (detail) return detail;
  if (request.status === 413) return "The files are too large.";
  return request.status === 403 ? REFUSED : `Signalbox refused the message (${request.status}).`;
}

function failed(message, why) {
  const { item } = message;
  item.querySelector("progress").hidden = true;
  item.querySelector("[data-state]").textContent = "Not sent";
  item.querySelector("[data-why]").textContent = why;
  item.querySelector("[data-failed]").hidden = false;
}

// Chosen here, so that a second try of what was committed after all says nothing twice.
function newId() {
  return `msg_${[...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  const words = text.value.trim();
  if (!words && !files.length) return;
  const message = { id: newId(), text: words, files };
  message.item = pending(message);
  underWay.add(message);
  list.append(message.item);
  text.value = "";
  files = [];
  showFiles();
  keepDraft();
  send(message);
  text.focus();
});

text.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing || touch) return;
  event.preventDefault();
  form.requestSubmit();
});
text.addEventListener("input", keepDraft);

picker.addEventListener("change", () => {
  take([...picker.files]);
  picker.value = "";
  text.focus();
});

document.addEventListener("paste", (event) => {
  const pasted = [...(event.clipboardData?.files ?? [])];
  if (!pasted.length) return;
  event.preventDefault();
  take(pasted);
});

let depth = 0;
document.addEventListener("dragenter", (event) => {
  if (!carriesFiles(event)) return;
  depth += 1;
  drop.hidden = false;
});
document.addEventListener("dragleave", (event) => {
  if (!carriesFiles(event)) return;
  depth = Math.max(0, depth - 1);
  drop.hidden = depth === 0;
});
document.addEventListener("dragover", (event) => carriesFiles(event) && event.preventDefault());
document.addEventListener("drop", (event) => {
  if (!carriesFiles(event)) return;
  event.preventDefault(); // anywhere on the page: a file that missed the box must not replace the page
  depth = 0;
  drop.hidden = true;
  take([...event.dataTransfer.files]);
});

window.addEventListener("beforeunload", (event) => {
  if ([...underWay].some((message) => message.files.length)) event.preventDefault(); // files are no draft
});

try {
  if (!text.value) text.value = localStorage.getItem(draftKey) ?? "";
} catch {
  // no drafts where the browser keeps none
}
if (!touch) text.focus({ preventScroll: true });
