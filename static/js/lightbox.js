// Images in full, over the page: a link's press opens it, Escape closes it, the arrows go to its neighbours.
const box = document.querySelector("#lightbox");
const picture = box.querySelector("img");
const name = box.querySelector(".lightbox-bar > span");
const full = box.querySelector("[data-full]");
let open = null;

const links = () => [...document.querySelectorAll("a[data-lightbox]")];

function show(link) {
  open = link;
  picture.src = link.href;
  picture.alt = link.querySelector("img")?.alt ?? "";
  const all = links();
  name.textContent = `${link.dataset.name} (${all.indexOf(link) + 1} of ${all.length})`;
  full.href = link.href;
  if (!box.open) box.showModal();
}

function step(by) {
  const all = links();
  const next = all[all.indexOf(open) + by];
  if (next) show(next);
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-lightbox]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
  event.preventDefault();
  show(link);
});
box.addEventListener("keydown", (event) => {
  if (event.key === "ArrowLeft") step(-1);
  else if (event.key === "ArrowRight") step(1);
});
box.addEventListener("close", () => {
  picture.removeAttribute("src");
  open?.focus();
});
