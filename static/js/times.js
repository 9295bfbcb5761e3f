// <time datetime> in the viewer's zone: relative text kept fresh, the exact time on hover, clocks that tick.
// Says the same as dashboard/times.py.
const minute = 60, hour = 3600, day = 86400, week = 7 * day;
const exact = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });
const dayThisYear = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });
const dayWithYear = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric" });

const twoDigits = (number) => String(number).padStart(2, "0");

function oneUnit(seconds) {
  for (const [size, sign] of [[day, "d"], [hour, "h"], [minute, "m"]]) {
    if (seconds >= size) return `${Math.floor(seconds / size)}${sign}`;
  }
  return `${Math.floor(seconds)}s`;
}

function relative(moment, now) {
  const seconds = (now - moment) / 1000;
  const distance = Math.abs(seconds);
  if (distance < 10) return "just now";
  if (distance >= week) {
    const thisYear = moment.getFullYear() === new Date(now).getFullYear();
    return (thisYear ? dayThisYear : dayWithYear).format(moment);
  }
  return seconds > 0 ? `${oneUnit(distance)} ago` : `in ${oneUnit(distance)}`;
}

function length(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < minute) return `${whole} s`;
  if (whole < hour) return `${Math.floor(whole / minute)}m ${twoDigits(whole % minute)}s`;
  if (whole < day) return `${Math.floor(whole / hour)}h ${twoDigits(Math.floor((whole % hour) / minute))}m`;
  return `${Math.floor(whole / day)}d ${Math.floor((whole % day) / hour)}h`;
}

function textOf(element, moment, now) {
  if (element.dataset.clock === "since") return length((now - moment) / 1000);
  if (element.dataset.clock === "until") return moment > now ? length((moment - now) / 1000) : "passed";
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
  const now = Date.now();
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
