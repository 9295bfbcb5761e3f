// Short messages: those the server drew, those it sends with HX-Trigger "toast", and what went wrong on the way.
const list = document.querySelector("#toasts");
const sprite = document.querySelector("svg.icon use")?.getAttribute("href").split("#")[0];
const shapes = { success: "st-check", warning: "st-warning", error: "st-warning", info: "st-info" };
const stay = 6000; // milliseconds; warnings and errors stay until they are closed

function picture(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  const use = document.createElementNS("http://www.w3.org/2000/svg", "use");
  use.setAttribute("href", `${sprite}#${name}`);
  svg.append(use);
  return svg;
}

function closable(toast) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "button ghost icon-only small";
  button.setAttribute("aria-label", "Close");
  button.append(picture("close"));
  button.addEventListener("click", () => toast.remove());
  toast.append(button);
  if (!toast.matches(".error, .warning")) setTimeout(() => leave(toast), stay);
}

function leave(toast) {
  if (toast.matches(":hover, :focus-within")) setTimeout(() => leave(toast), 1000);
  else toast.remove();
}

function say(level, text) {
  const toast = document.createElement("div");
  toast.className = `toast ${level}`;
  const words = document.createElement("span");
  words.className = "grow";
  words.textContent = text;
  toast.append(picture(shapes[level] ?? "st-info"), words);
  closable(toast);
  list.append(toast);
}

function reasonIn(request) {
  try {
    const { detail } = JSON.parse(request.responseText);
    if (typeof detail === "string") return detail;
  } catch {
    // an error page rather than our JSON: its status has to do
  }
  return `Something went wrong (${request.status}). Reload the page and try again.`;
}

// What refreshes itself (live.js) tries again by itself, and the Live button shows that the server is away.
function isByItself(event) {
  return event.target.dataset?.refreshOn !== undefined;
}

if (list) {
  list.querySelectorAll(".toast").forEach(closable);
  document.body.addEventListener("toast", (event) => say(event.detail.level ?? "info", event.detail.text));
  document.body.addEventListener("htmx:responseError", (event) => say("error", reasonIn(event.detail.xhr)));
  document.body.addEventListener("htmx:sendError", (event) => {
    if (!isByItself(event)) say("error", "Signalbox cannot be reached. Nothing was sent.");
  });
  document.body.addEventListener("htmx:timeout", () => say("error", "Signalbox took too long to answer."));
}
