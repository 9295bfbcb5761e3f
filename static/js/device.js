// What this browser keeps of Signalbox beside its pages (service-worker.js), and how it is forgotten.
export const KEPT = "signalbox-kept";
export const LIST = "/ui/push/waiting/";
export const PROOF = "/ui/push/proof";
export const SCOPE = "/ui/";
export const RENEWED = "signalbox-renewed"; // in the tab's own storage: push.js has tried
const switchedOn = "signalbox-push"; // attention.js then leaves notifications to the service worker

export const able = window.isSecureContext && "serviceWorker" in navigator && "caches" in window;

export function remember(isOn) {
  localStorage.setItem(switchedOn, isOn ? "on" : "off");
}

// Nothing of what requests said stays behind for whoever uses this browser next.
export async function forget() {
  if (!able) return;
  sessionStorage.removeItem(RENEWED);
  await caches.delete(KEPT);
  navigator.clearAppBadge?.().catch(() => {});
  const registration = await navigator.serviceWorker.getRegistration(SCOPE);
  for (const note of (await registration?.getNotifications()) ?? []) note.close();
}

// Ends this browser's subscription; the server has forgotten it, or is told by its push service.
export async function unsubscribe() {
  remember(false);
  const registration = able ? await navigator.serviceWorker.getRegistration(SCOPE) : undefined;
  const subscription = await registration?.pushManager?.getSubscription();
  await subscription?.unsubscribe();
}
