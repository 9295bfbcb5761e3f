// A thread: stays at its end, gets older messages without a jump, says days and times, notes what was read.
const chat = document.querySelector("[data-chat]");
const scroller = chat.querySelector(".chat-scroll");
const list = chat.querySelector(".chat-messages");
const jump = chat.querySelector(".chat-jump");
const nothing = chat.querySelector(".chat-empty");
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const dayNames = new Intl.DateTimeFormat("en-GB", { weekday: "long", day: "numeric", month: "long" });
const dayNamesWithYear = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "long", year: "numeric" });
const nearEnd = 120; // pixels from the end that still count as being there
const goesOnWithin = 5 * 60_000; // milliseconds between messages of one speaker that stand under one name

let missed = 0;
let atEnd = true;
let marked = "";

const messages = () => [...list.querySelectorAll(".chat-message:not(.pending)")];
const momentOf = (message) => new Date(message.querySelector("time[data-time]")?.dateTime ?? NaN);

function isAtEnd() {
  return scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < nearEnd;
}

export function toEnd() {
  scroller.scrollTop = scroller.scrollHeight;
  atEnd = true;
  missed = 0;
  jump.hidden = true;
}

function dayName(moment) {
  const today = new Date();
  const yesterday = new Date(today.getFullYear(), today.getMonth(), today.getDate() - 1);
  if (moment.toDateString() === today.toDateString()) return "Today";
  if (moment.toDateString() === yesterday.toDateString()) return "Yesterday";
  return (moment.getFullYear() === today.getFullYear() ? dayNames : dayNamesWithYear).format(moment);
}

function separator(name) {
  const item = document.createElement("li");
  item.className = "chat-day";
  item.textContent = name;
  return item;
}

// Days and speakers depend on what stands above, so all are looked at again; a page holds some hundreds.
function arrange() {
  let day = "";
  let above = null;
  for (const message of messages()) {
    const moment = momentOf(message);
    const known = !Number.isNaN(moment.getTime());
    const today = known ? moment.toDateString() : day;
    const before = message.previousElementSibling;
    if (today === day) {
      if (before?.matches(".chat-day")) before.remove();
    } else if (!before?.matches(".chat-day")) {
      message.before(separator(dayName(moment)));
    } else {
      before.textContent = dayName(moment);
    }
    const soon = above && known && moment - momentOf(above) < goesOnWithin;
    const same = above?.dataset.source === message.dataset.source && above?.dataset.user === message.dataset.user;
    message.classList.toggle("goes-on", Boolean(soon && same && today === day));
    const time = message.querySelector("time[data-time]");
    if (known && time) time.textContent = clock.format(moment);
    day = today;
    above = message;
  }
  for (const item of list.querySelectorAll(".chat-day")) {
    if (!item.nextElementSibling?.matches(".chat-message")) item.remove();
  }
  if (nothing) nothing.hidden = Boolean(list.querySelector(".chat-message"));
}

async function older() {
  const place = list.querySelector("#older");
  if (!place || place.dataset.asked) return;
  place.dataset.asked = "yes";
  let answer;
  try {
    answer = await fetch(place.querySelector("a").href, { headers: { "HX-Request": "true" } });
  } catch {
    answer = null;
  }
  if (!answer?.ok || answer.redirected) {
    delete place.dataset.asked; // the link is still there to be followed
    return;
  }
  const html = await answer.text();
  const fromEnd = scroller.scrollHeight - scroller.scrollTop;
  const parsed = document.createElement("template");
  parsed.innerHTML = html;
  place.replaceWith(parsed.content);
  window.htmx.process(list);
  arrange();
  scroller.scrollTop = scroller.scrollHeight - fromEnd;
  watchOlder();
}

const sight = new IntersectionObserver((seen) => seen.some((one) => one.isIntersecting) && older(), {
  root: scroller,
  rootMargin: "600px 0px 0px 0px",
});

function watchOlder() {
  sight.disconnect();
  const place = list.querySelector("#older");
  if (place) sight.observe(place);
}

let marking = 0;
function markSoon() {
  clearTimeout(marking);
  marking = setTimeout(markRead, 400);
}

async function markRead() {
  const last = messages().at(-1);
  if (!last || document.hidden || !isAtEnd() || last.dataset.place === marked || "part" in list.dataset) return;
  marked = last.dataset.place;
  const token = JSON.parse(document.body.getAttribute("hx-headers"))["X-CSRFToken"];
  try {
    const headers = { "X-CSRFToken": token, "HX-Request": "true" };
    document.dispatchEvent(new CustomEvent("proof:add", { detail: headers }));
    const answer = await fetch(chat.dataset.read, { method: "POST", headers, body: new URLSearchParams({ place: marked }) });
    if (answer.ok) document.body.dispatchEvent(new CustomEvent("chat:read"));
  } catch {
    marked = ""; // the next look tries again
  }
}

function grown(changes) {
  const added = changes
    .flatMap((change) => [...change.addedNodes])
    .filter((node) => node.nodeType === Node.ELEMENT_NODE && node.matches(".chat-message"));
  const removed = changes.some((change) =>
    [...change.removedNodes].some((node) => node.nodeType === Node.ELEMENT_NODE && node.matches(".chat-message")));
  if (!added.length && !removed) return;
  arrange();
  const news = added.filter((node) => node === list.lastElementChild || node.nextElementSibling?.matches(".pending"));
  if (atEnd || added.some((node) => node.matches(".pending"))) toEnd();
  else if (news.length) {
    missed += news.length;
    jump.querySelector("span").textContent = missed === 1 ? "1 new message" : `${missed} new messages`;
    jump.hidden = false;
  }
  markSoon();
}

scroller.addEventListener("scroll", () => {
  atEnd = isAtEnd();
  if (atEnd) {
    missed = 0;
    jump.hidden = true;
    markSoon();
  }
}, { passive: true });
jump.addEventListener("click", toEnd);
document.addEventListener("visibilitychange", markSoon);
document.body.addEventListener("live:reset", () => location.reload());
new ResizeObserver(() => atEnd && toEnd()).observe(scroller);
// An image whose size nobody knew grows when it has come.
list.addEventListener("load", () => atEnd && toEnd(), true);

arrange();
const target = list.dataset.target && document.getElementById(`message-${list.dataset.target}`);
if (target) {
  target.classList.add("targeted");
  target.scrollIntoView({ block: "center" });
  atEnd = isAtEnd();
} else {
  toEnd();
}
watchOlder();
new MutationObserver(grown).observe(list, { childList: true });
markSoon();
