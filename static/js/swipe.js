// One request a screen: a swipe to the right approves it, one to the left denies it. What a swipe decides is sent after a
// moment in which it can be taken back. It presses the button of the form, so whatever holds for that holds for a swipe.
const far = 96; // pixels that a swipe goes at least
const delay = 4000; // milliseconds in which it can be taken back
const bar = document.querySelector("#take-back");
const words = bar.querySelector("[data-take-back-words]");
let start = null;
let pending = null;

const card = () => document.querySelector(".one-by-one .ask:not([data-passed])");
const buttonFor = (dx) => card()?.querySelector(dx > 0 ? ".decide .button.approve" : ".decide .button.deny");
const judged = () => [...document.querySelectorAll(".one-by-one [name=judged]")].map((input) => input.value).join();
const scrollsSideways = (element) => element.closest(".one-by-one") && element.scrollWidth > element.clientWidth + 4;

function settle() {
  const moved = card();
  if (!moved) return;
  moved.removeAttribute("style"); // an empty one would be copied, which the policy forbids
  moved.classList.remove("approving", "denying");
}

function takeBack(text = "") {
  if (!pending) return;
  clearTimeout(pending.timer);
  pending = null;
  bar.hidden = true;
  settle();
  if (text) document.body.dispatchEvent(new CustomEvent("toast", { detail: { level: "warning", text } }));
}

function decide(button) {
  // What is asked about once more, or refused, needs no time to take it back.
  if (button.dataset.confirm || button.ariaDisabled === "true") {
    settle();
    button.click();
    return;
  }
  const approves = button.matches(".approve");
  words.textContent = approves ? "Approving…" : "Denying…";
  bar.hidden = false;
  card().classList.add(approves ? "approving" : "denying");
  pending = { what: judged(), timer: setTimeout(() => send(button), delay) };
}

function send(button) {
  const isSame = pending.what === judged() && button.isConnected;
  takeBack(isSame ? "" : "The request has changed. Nothing was sent.");
  if (isSame) button.click();
}

document.addEventListener("touchstart", (event) => {
  const { target, touches } = event;
  const isOurs = touches.length === 1 && !pending && card()?.contains(target) && !target.closest("input, textarea, select, button, summary");
  let part = isOurs ? target : null;
  while (part && part !== card() && !scrollsSideways(part)) part = part.parentElement;
  start = isOurs && part === card() ? { x: touches[0].clientX, y: touches[0].clientY, dx: 0, sideways: null } : null;
}, { passive: true });

document.addEventListener("touchmove", ({ touches }) => {
  if (!start) return;
  const dx = touches[0].clientX - start.x;
  const dy = touches[0].clientY - start.y;
  start.sideways ??= Math.hypot(dx, dy) > 12 ? Math.abs(dx) > 2 * Math.abs(dy) : null;
  if (start.sideways === false || touches.length > 1) start = null;
  if (!start?.sideways) return;
  start.dx = dx;
  card().style.translate = `${dx}px`;
  card().classList.toggle("approving", dx > far);
  card().classList.toggle("denying", dx < -far);
}, { passive: true });

document.addEventListener("touchend", () => {
  const dx = start?.sideways ? start.dx : 0;
  start = null;
  if (!dx) return;
  settle();
  const button = Math.abs(dx) > far ? buttonFor(dx) : null;
  if (button) decide(button);
});

document.addEventListener("touchcancel", () => {
  start = null;
  settle();
});

// A finger that comes down soon after a swipe ends its movement alone: no click follows.
for (const name of ["pointerdown", "click"]) bar.querySelector("[data-take-back]").addEventListener(name, () => takeBack());
document.addEventListener("submit", () => takeBack(), true); // another verdict, by hand or by key
document.addEventListener("visibilitychange", () => document.hidden && takeBack("You left the page. Nothing was sent."));
document.body.addEventListener("htmx:afterSwap", () => {
  if (pending && pending.what !== judged()) takeBack("The request has changed. Nothing was sent.");
});
