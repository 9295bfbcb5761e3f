// A page whose days are the reader's own: the first time, it is asked for again with the reader's zone.
const own = new Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
const address = new URL(location.href);
const page = document.querySelector("[data-zone-of-page]");

if (page && !address.searchParams.has("zone") && page.dataset.zoneOfPage !== own) {
  address.searchParams.set("zone", own);
  location.replace(address);
}
