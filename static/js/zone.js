// Where a person chooses a time zone for the first time, their browser's stands there already.
const own = new Intl.DateTimeFormat().resolvedOptions().timeZone;

for (const field of document.querySelectorAll("select[data-own-zone]"))
  if ([...field.options].some((option) => option.value === own)) field.value = own;
