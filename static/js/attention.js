// Tells a person that requests wait while they look elsewhere: the tab's title, and, where they have switched it on
// in this browser, a notification and a sound. A hidden tab holds no live stream, so with either switched on the
// badge is asked for now and then.
const switches = { notify: "signalbox-notify", sound: "signalbox-sound" };
const askEvery = 20_000;
const badge = () => document.querySelector("#rail-badge-approvals");
const isOn = (name) => localStorage.getItem(switches[name]) === "on";
const isPushed = () => localStorage.getItem("signalbox-push") === "on"; // push.js: its notifications say more
let bare = document.title;
let count = Number(badge()?.dataset.badge ?? 0);
let audio = null;

function showTitle() {
  document.title = count ? `(${count}) ${bare}` : bare;
}

document.addEventListener("page:titled", (event) => {
  bare = event.detail;
  showTitle();
});

function heard(now) {
  const more = now > count;
  count = now;
  showTitle();
  if (!more) return;
  if (isOn("sound")) play();
  if (isOn("notify") && !isPushed() && (document.hidden || !document.hasFocus()) && window.Notification?.permission === "granted") notify();
}

function notify() {
  const words = count === 1 ? "A request is waiting for you" : `${count} requests are waiting for you`;
  const shown = new Notification("Signalbox", { body: words, tag: "signalbox-waiting", renotify: true });
  shown.addEventListener("click", () => {
    window.focus();
    location.assign("/ui/approvals/");
  });
}

// Two short tones, made here: no file to load. Browsers stay silent until the page was touched once.
function play() {
  audio ??= new AudioContext();
  for (const [start, pitch] of [[0, 660], [0.14, 880]]) {
    const tone = audio.createOscillator();
    const volume = audio.createGain();
    tone.frequency.value = pitch;
    volume.gain.setValueAtTime(0.08, audio.currentTime + start);
    volume.gain.exponentialRampToValueAtTime(0.001, audio.currentTime + start + 0.13);
    tone.connect(volume).connect(audio.destination);
    tone.start(audio.currentTime + start);
    tone.stop(audio.currentTime + start + 0.14);
  }
}

async function ask() {
  if (!document.hidden || !(isOn("notify") || isOn("sound"))) return;
  const answer = await fetch("/ui/rail/approvals/badge/", { headers: { "HX-Request": "true" } }).catch(() => null);
  if (!answer?.ok) return;
  const parsed = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("[data-badge]");
  if (parsed) heard(Number(parsed.dataset.badge));
}

async function turn(box) {
  if (box.dataset.attention === "notify" && box.checked) {
    box.checked = (await window.Notification?.requestPermission()) === "granted";
    if (!box.checked) say("This browser does not allow notifications from here. Allow them in its site settings.");
  }
  localStorage.setItem(switches[box.dataset.attention], box.checked ? "on" : "off");
  if (box.dataset.attention === "sound" && box.checked) play();
}

function say(text) {
  document.querySelector("[data-attention-message]").textContent = text;
}

if (badge()) {
  showTitle();
  document.body.addEventListener("htmx:afterSwap", () => heard(Number(badge()?.dataset.badge ?? 0)));
  setInterval(ask, askEvery);
}

for (const box of document.querySelectorAll("[data-attention]")) {
  box.disabled = false;
  box.checked = isOn(box.dataset.attention);
  box.addEventListener("change", () => turn(box));
}
