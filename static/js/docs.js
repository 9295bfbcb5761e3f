// Swagger UI turns dark by a class; set it from the reader's choice before anything is drawn.
const scheme = document.querySelector("meta[name=color-scheme]").content;
const systemIsDark = matchMedia("(prefers-color-scheme: dark)");
const paint = () => document.documentElement.classList.toggle(
  "dark-mode", scheme === "dark" || (scheme === "light dark" && systemIsDark.matches),
);

paint();
systemIsDark.addEventListener("change", paint);
