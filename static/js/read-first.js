// Approve is offered once the end of everything long that it would approve has been in view: on a card and in the
// question about several. What is short holds nobody up. Without scripts nothing is folded (css/unfolded.css).
const seen = new Set(); // long boxes whose end was in view, by what holds them and their place there
const slack = 4; // pixels

const forms = () => [...document.querySelectorAll("form.decide, form.set")];
const holderOf = (form) => (form.matches(".set") ? form : form.closest(".ask") ?? form);
const boxesOf = (holder) => [...holder.querySelectorAll(".asked, .asked .code, .asked-value, .set-list, .set-gist")];
const isScrolled = (box) => box.scrollHeight > box.clientHeight + slack && getComputedStyle(box).overflowY !== "visible";
const isLong = (box) => isScrolled(box) || box.getBoundingClientRect().height > window.innerHeight;

function keyOf(holder, box) {
  const name = holder.id || [...holder.querySelectorAll("input[name=ids]")].map((input) => input.value).join();
  return `${name} ${boxesOf(holder).indexOf(box)}`;
}

// What is folded although it is long counts as unread: in a closed list of all, or in a pane that is not shown.
const isDrawn = (box) => box.getClientRects().length > 0;
const isFolded = (box) =>
  Boolean(box.closest("details[data-long]:not([open])")) || (Boolean(box.closest(".ask-pane[data-long]")) && !isDrawn(box));

// Where the screen ends for who reads: at a bar that lies upon its foot.
function floor() {
  const bars = [...document.querySelectorAll(".one-by-one .decide:not(.answer), .rail")].map((bar) => bar.getBoundingClientRect());
  const tops = bars.filter(({ top, width }) => width > window.innerWidth / 2 && top > window.innerHeight / 2).map(({ top }) => top);
  return Math.min(window.innerHeight, ...tops);
}

function isEndInView(box) {
  if (document.hidden || !isDrawn(box)) return false;
  if (isScrolled(box) && box.scrollTop + box.clientHeight < box.scrollHeight - slack) return false;
  const { bottom } = box.getBoundingClientRect();
  const around = box.parentElement.closest(".set-list, .ask-pane-body")?.getBoundingClientRect().bottom ?? window.innerHeight;
  return bottom > 0 && bottom <= Math.min(around, floor()) + slack;
}

function unreadOf(form) {
  const holder = holderOf(form);
  return boxesOf(holder).filter((box) => {
    const key = keyOf(holder, box);
    if (seen.has(key)) return false;
    if (isFolded(box)) return true;
    if (!isDrawn(box) || !isLong(box)) return false;
    if (isEndInView(box)) seen.add(key);
    return !seen.has(key);
  });
}

function update() {
  for (const form of forms()) {
    const locked = unreadOf(form).length > 0;
    for (const button of form.querySelectorAll(".button.approve")) button.setAttribute("aria-disabled", `${locked}`);
    for (const note of form.querySelectorAll("[data-read-first]")) note.hidden = !locked;
  }
}

let waiting = false;
function look() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    update();
  });
}

// However it is sent: by hand, by a key, from the reason's field.
document.addEventListener("submit", (event) => {
  const form = event.target;
  if (!form.matches("form.decide, form.set") || !event.submitter?.matches(".approve")) return;
  const [unread] = unreadOf(form);
  if (!unread) return;
  event.preventDefault();
  event.stopImmediatePropagation();
  unread.closest("details[data-long]:not([open])")?.setAttribute("open", "");
  if (!isDrawn(unread)) unread.closest(".ask")?.querySelector("[data-toggle-card]")?.click();
  unread.scrollIntoView({ block: "nearest" });
  const text = "Nothing was approved. Scroll to the end of what is asked first.";
  document.body.dispatchEvent(new CustomEvent("toast", { detail: { level: "warning", text } }));
  update();
}, true);

for (const name of ["scroll", "toggle", "visibilitychange"]) document.addEventListener(name, look, { capture: true, passive: true });
for (const name of ["resize", "load"]) window.addEventListener(name, look);
for (const name of ["htmx:afterSwap", "htmx:afterSettle"]) document.body.addEventListener(name, look);
update();
