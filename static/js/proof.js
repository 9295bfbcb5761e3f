// The second half of a sign-in (coordinator/identity/browser_secrets.py): a secret that this browser makes, keeps in the storage
// of this origin, port included, and sends with all that changes anything. Cookies go to every port of a host.
const place = "signalbox-proof";
const header = "X-Signalbox-Proof";

function kept() {
  try {
    return localStorage.getItem(place) ?? "";
  } catch {
    return ""; // no storage here: the password is asked for each time
  }
}

function keep(secret) {
  try {
    localStorage.setItem(place, secret);
    return secret;
  } catch {
    return "";
  }
}

function made() {
  return [...crypto.getRandomValues(new Uint8Array(32))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

const fresh = made(); // once a page: a browser may ask a form for its data more than once

// Forms that the browser sends itself, and those that scripts read with FormData. Never into an address: only POST.
document.addEventListener("formdata", ({ target, formData }) => {
  if (target.getAttribute("method")?.toLowerCase() !== "post") return;
  const which = target.dataset.newProof;
  if (which !== undefined) formData.set("new_proof", keep((which === "kept" && kept()) || fresh));
  else if (kept()) formData.set("proof", kept());
});

document.addEventListener("htmx:configRequest", ({ detail }) => {
  if (detail.verb !== "get" && kept()) detail.headers[header] = kept();
});

// Another page can lead here in the moment of a click or a key that was meant for itself. So what changes anything
// waits until a person who came from elsewhere has had the time to see where they are.
// Such a page may also have waited behind a window of the other's, which closes between two clicks.
const fromElsewhere = document.querySelector("meta[name=from-elsewhere]");
let settled = fromElsewhere ? 2_000 : 0; // milliseconds since the page was asked for
const again = () => (settled = Math.max(settled, performance.now() + 1_000));
if (fromElsewhere) window.addEventListener("focus", again);

function hold(event) {
  if (performance.now() > settled) return;
  event.preventDefault();
  event.stopImmediatePropagation();
  const text = "You have just arrived here from another page. Check this page, then try again.";
  document.body.dispatchEvent(new CustomEvent("toast", { detail: { level: "warning", text } }));
}

const posts = (form) => form.hasAttribute("hx-post") || form.getAttribute("method")?.toLowerCase() === "post";
const changes = (form) => !form.closest("[data-only-asks]"); // a form that only asks may be sent at once, by itself too
window.addEventListener("submit", (event) => posts(event.target) && changes(event.target) && hold(event), true);
window.addEventListener("htmx:confirm", (event) => event.detail.verb !== "get" && changes(event.target) && hold(event), true);

// For modules that send by themselves: document.dispatchEvent(new CustomEvent("proof:add", { detail: headers })).
document.addEventListener("proof:add", ({ detail }) => {
  if (kept()) detail[header] = kept();
});

// A refusal for want of the proof, or of a recent confirmation: ask here, so that nothing on the page is lost, and go on
// with what was refused where that can be sent again.
const dialog = document.querySelector("#password-again");
let goOn = null;

function ask({ message, ways, retry }) {
  goOn = retry ?? null;
  const offered = ways.split(" ");
  const isOffered = (part) => part.dataset.way.split(" ").some((way) => offered.includes(way));
  for (const part of dialog.querySelectorAll("[data-way]")) part.hidden = !isOffered(part);
  dialog.querySelector("[data-message]").textContent = message;
  dialog.querySelector("[data-problem]").hidden = true;
  if (!dialog.open) dialog.showModal();
}

function detailIn(text) {
  try {
    return JSON.parse(text).detail;
  } catch {
    return "";
  }
}

async function confirm(form) {
  const secret = kept() || fresh;
  const fields = new URLSearchParams(new FormData(form));
  fields.delete("proof"); // with it, nothing would have to be confirmed
  fields.set("new_proof", secret);
  const headers = { "HX-Request": "true" };
  const answer = await fetch(form.action, { method: "POST", body: fields, headers }).catch(() => null);
  for (const input of form.querySelectorAll("[name^=confirm_]")) input.value = "";
  if (answer?.ok) {
    keep(secret);
    dialog.close();
    const text = goOn ? "Confirmed." : "Confirmed. Do it once more: nothing had been changed yet.";
    document.body.dispatchEvent(new CustomEvent("toast", { detail: { level: "success", text } }));
    goOn?.();
    return;
  }
  const problem = dialog.querySelector("[data-problem]");
  problem.hidden = false;
  problem.querySelector("p").textContent = (answer && detailIn(await answer.text())) || "Signalbox sent an unexpected answer. Reload the page.";
}

// What htmx sent is sent again as it was, the pressed button's value included, if its place is still on the page.
function resendBy({ elt, requestConfig }) {
  const { verb, path, formData, target } = requestConfig;
  return document.contains(elt) ? () => window.htmx.ajax(verb, path, { source: elt, target, values: formData }) : null;
}

if (dialog) {
  dialog.addEventListener("submit", (event) => {
    if (event.target.target) return dialog.close(); // the provider of single sign-on asks, in another tab
    event.preventDefault();
    confirm(event.target);
  });
  for (const button of dialog.querySelectorAll("[data-cancel]")) button.addEventListener("click", () => dialog.close());
  document.addEventListener("proof:wanted", ({ detail }) => ask(detail));
  window.addEventListener("htmx:responseError", (event) => {
    const ways = event.detail.xhr.getResponseHeader("Signalbox-Confirm");
    if (!ways) return;
    event.stopPropagation(); // before toasts.js: the dialog says it
    ask({ message: detailIn(event.detail.xhr.responseText), ways, retry: resendBy(event.detail) });
  }, true);
}
