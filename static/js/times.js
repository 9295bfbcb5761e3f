// <time datetime> in the viewer's zone: relative text kept fresh, the exact time on hover, clocks that tick.
import { clock, relative } from "./time-words.js";

const exact = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });

function textOf(element, moment, now) {
  if (element.dataset.clock === "since") return clock((now - moment) / 1000);
  if (element.dataset.clock === "until") return moment > now ? clock((moment - now) / 1000) : "passed";
  return relative(moment, now);
}

function show(element, now) {
  const moment = new Date(element.dateTime);
  if (Number.isNaN(moment.getTime())) return;
  const text = element.dataset.clock === "fixed" ? element.textContent : textOf(element, moment, now);
  if (element.textContent !== text) element.textContent = text;
  const title = exact.format(moment);
  if (element.title !== title) element.title = title;
}

function showAll(selector, root = document) {
  const now = new Date();
  if (root.matches?.(selector)) show(root, now);
  for (const element of root.querySelectorAll(selector)) show(element, now);
}

showAll("time[datetime]");
setInterval(() => document.hidden || showAll("time[data-clock]"), 1000);
setInterval(() => document.hidden || showAll("time[datetime]"), 15000);
document.addEventListener("visibilitychange", () => document.hidden || showAll("time[datetime]"));
new MutationObserver((changes) => {
  for (const { addedNodes } of changes) {
    for (const node of addedNodes) if (node.nodeType === Node.ELEMENT_NODE) showAll("time[datetime]", node);
  }
}).observe(document.body, { childList: true, subtree: true });
