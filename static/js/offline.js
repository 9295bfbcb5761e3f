// The page that the service worker shows where Signalbox cannot be reached: the last list, marked as old, and no way
// to decide. It looks for the server and gives way to the page that was asked for.
import { KEPT, LIST } from "./device.js";
import { relative } from "./time-words.js";

const again = 15_000; // milliseconds between looks
const exact = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
const template = document.querySelector("template");

function row(request) {
  const item = template.content.cloneNode(true);
  for (const name of ["title", "body", "beside"]) {
    const place = item.querySelector(`[data-${name}]`);
    place.textContent = request[name] ?? "";
    place.hidden = !request[name];
  }
  const asked = new Date(request.asked_at);
  const time = item.querySelector("time");
  if (Number.isNaN(asked.getTime())) time.textContent = "at an unknown time";
  else {
    time.dateTime = request.asked_at;
    time.textContent = exact.format(asked);
  }
  return item;
}

async function draw() {
  const kept = await caches.match(LIST, { cacheName: KEPT });
  document.querySelector("[data-none]").hidden = Boolean(kept);
  if (!kept) return;
  const list = await kept.json();
  const at = new Date(list.at);
  for (const time of document.querySelectorAll("[data-at]")) {
    time.dateTime = list.at;
    time.textContent = `${exact.format(at)} (${relative(at, new Date())})`;
  }
  document.querySelector("[data-old]").hidden = false;
  document.querySelector("[data-empty]").hidden = list.requests.length > 0;
  document.querySelector("[data-list]").replaceChildren(...list.requests.map(row));
  document.querySelector("[data-list]").hidden = list.requests.length === 0;
}

async function tryAgain() {
  const answer = await fetch("/health", { cache: "no-store" }).catch(() => null);
  if (answer?.ok) location.reload();
}

draw();
setInterval(tryAgain, again);
window.addEventListener("online", tryAgain);
document.querySelector("[data-again]").addEventListener("click", () => location.reload());
