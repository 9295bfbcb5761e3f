// Days in a filter are the reader's own: their zone goes along with them. Days that came in a link keep the link's
// zone, until the reader chooses another day. See dashboard/frame/days.py.
const own = new Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
const dayFields = "input[type=date][name=since], input[type=date][name=until]";

function nameZone(form, zone) {
  const field = form.querySelector("[data-zone-of-days]");
  if (!field) return;
  field.value = zone;
  field.parentElement.querySelector("[data-zone-name]").textContent = zone;
}

for (const field of document.querySelectorAll("[data-zone-of-days]")) if (!field.value) nameZone(field.form, own);

// Before anything else hears of the change and sends the form.
document.addEventListener("change", ({ target }) => target.matches(dayFields) && nameZone(target.form, own), true);

// A zone without days would only make the URL longer.
document.addEventListener("formdata", ({ target, formData }) => {
  if (target.querySelector("[data-zone-of-days]") && !formData.get("since") && !formData.get("until")) formData.delete("zone");
});
