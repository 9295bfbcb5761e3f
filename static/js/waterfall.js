// The waterfall: dragging over its axis zooms to that stretch. Zooming by links works without this.
const LEAST = 1; // percent of the width: less is a click

let drag = null;

const percent = (axis, clientX) => {
  const box = axis.getBoundingClientRect();
  return Math.min(Math.max((100 * (clientX - box.left)) / box.width, 0), 100);
};

function draw() {
  const [from, to] = [drag.from, drag.to].sort((one, other) => one - other);
  drag.rect.setAttribute("x", `${from}%`);
  drag.rect.setAttribute("width", `${to - from}%`);
}

document.addEventListener("pointerdown", (event) => {
  const axis = event.target.closest("[data-axis]");
  if (!axis || event.button) return;
  const rect = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  rect.setAttribute("class", "drag");
  rect.setAttribute("height", "22");
  axis.append(rect);
  axis.setPointerCapture(event.pointerId);
  const at = percent(axis, event.clientX);
  drag = { axis, rect, from: at, to: at };
  event.preventDefault();
});

document.addEventListener("pointermove", (event) => {
  if (!drag) return;
  drag.to = percent(drag.axis, event.clientX);
  draw();
});

function end(event) {
  if (!drag) return;
  const { rect, from, to } = drag;
  drag = null;
  rect.remove();
  if (event.type === "pointercancel" || Math.abs(to - from) < LEAST) return;
  const url = new URL(window.location.href);
  url.searchParams.set("left", Math.min(from, to).toFixed(2));
  url.searchParams.set("right", Math.max(from, to).toFixed(2));
  window.location.assign(url);
}

document.addEventListener("pointerup", end);
document.addEventListener("pointercancel", end);
