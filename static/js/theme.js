// The theme switch takes effect at once; without this module its form is posted and the page drawn again.
const schemes = { system: "light dark", light: "light", dark: "dark" };
const year = 365 * 24 * 3600;

document.addEventListener("submit", (event) => {
  const form = event.target.closest("[data-theme-form]");
  if (!form || !event.submitter) return;
  event.preventDefault();
  const name = event.submitter.value;
  const secure = location.protocol === "https:" ? "; secure" : "";
  document.querySelector("meta[name=color-scheme]").content = schemes[name];
  document.cookie = `signalbox_theme=${name}; path=/; max-age=${year}; samesite=lax${secure}`;
  for (const button of form.querySelectorAll("button")) {
    button.setAttribute("aria-pressed", String(button === event.submitter));
  }
});
