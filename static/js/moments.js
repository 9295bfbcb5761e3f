// Times are typed in the reader's own zone, and sent in UTC: fields [data-moment] of forms [data-moments], which the
// server fills in UTC. Without script they stay in UTC, as the form says.
const local = (text) => {
  const moment = new Date(`${text}Z`);
  if (Number.isNaN(moment.getTime())) return text;
  return new Date(moment - moment.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
};

for (const form of document.querySelectorAll("form[data-moments]")) {
  const fields = [...form.querySelectorAll("[data-moment]")];
  for (const field of fields) field.value = local(field.value);
  for (const zone of form.querySelectorAll("[data-zone]")) {
    zone.textContent = Intl.DateTimeFormat().resolvedOptions().timeZone;
  }
  form.addEventListener("formdata", (event) => {
    for (const field of fields) {
      const moment = new Date(field.value);
      if (!Number.isNaN(moment.getTime())) event.formData.set(field.name, moment.toISOString());
    }
  });
}
