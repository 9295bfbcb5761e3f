// Passkeys: a button with data-passkey asks the server for a challenge, the device for an answer to it, and then sends its
// form with that answer. The buttons are hidden until this has run: without a script no page can ask a device.
const bytesOf = (text) => Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (letter) => letter.charCodeAt(0));
const textOf = (bytes) => btoa(String.fromCharCode(...new Uint8Array(bytes))).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
const isAble = Boolean(window.PublicKeyCredential && navigator.credentials);

const unable = "This browser cannot use passkeys at this address. Use a current browser, over HTTPS or on localhost.";
const reasons = {
  NotAllowedError: "No passkey was used. Try again, or continue another way.",
  AbortError: "No passkey was used. Try again, or continue another way.",
  InvalidStateError: "This device already has a passkey for your account.",
  SecurityError: unable,
  NotSupportedError: "This device cannot make a passkey that checks that it is you. Use another device or a security key.",
};

const withBytes = (listed) => (listed ?? []).map((one) => ({ ...one, id: bytesOf(one.id) }));

async function makePasskey(options) {
  const user = { ...options.user, id: bytesOf(options.user.id) };
  const excludeCredentials = withBytes(options.excludeCredentials);
  const publicKey = { ...options, user, excludeCredentials, challenge: bytesOf(options.challenge) };
  const made = await navigator.credentials.create({ publicKey });
  const { clientDataJSON, attestationObject } = made.response;
  return answerOf(made, { clientDataJSON: textOf(clientDataJSON), attestationObject: textOf(attestationObject) });
}

async function usePasskey(options) {
  const publicKey = { ...options, allowCredentials: withBytes(options.allowCredentials), challenge: bytesOf(options.challenge) };
  const used = await navigator.credentials.get({ publicKey });
  const { clientDataJSON, authenticatorData, signature, userHandle } = used.response;
  const response = { clientDataJSON: textOf(clientDataJSON), authenticatorData: textOf(authenticatorData), signature: textOf(signature) };
  return answerOf(used, userHandle ? { ...response, userHandle: textOf(userHandle) } : response);
}

const answerOf = ({ id, rawId, type }, response) =>
  JSON.stringify({ id, rawId: textOf(rawId), type, response, clientExtensionResults: {} });

function say(form, text) {
  const problem = form.querySelector("[data-passkey-problem]");
  problem.querySelector("p").textContent = text;
  problem.hidden = !text;
}

// Only what the challenge is tied to: the rest of the form may be large, and waits.
async function fetchOptions(form, button) {
  const filled = new FormData(form);
  const fields = new URLSearchParams();
  const names = ["csrfmiddlewaretoken", "proof", "new_proof", ...(button.dataset.optionsFields?.split(" ") ?? [])];
  for (const name of names) if (filled.has(name)) fields.set(name, filled.get(name));
  return fetch(button.dataset.options, { method: "POST", body: fields, headers: { "HX-Request": "true" } });
}

async function fetchOptionsOrSay(form, button) {
  const answer = await fetchOptions(form, button).catch(() => null);
  if (!answer) return say(form, "Signalbox cannot be reached. Nothing was sent.");
  if (answer.ok) return answer.json();
  const { detail } = await answer.json().catch(() => ({}));
  const ways = answer.headers.get("Signalbox-Confirm");
  if (!ways) return say(form, detail ?? "Signalbox sent an unexpected answer. Reload the page.");
  const retry = () => form.requestSubmit(button);
  document.dispatchEvent(new CustomEvent("proof:wanted", { detail: { message: detail, ways, retry } }));
}

async function askDevice(form, button) {
  say(form, "");
  const options = await fetchOptionsOrSay(form, button);
  if (!options) return;
  try {
    const answer = await (button.dataset.passkey === "add" ? makePasskey(options) : usePasskey(options));
    form.querySelector("[data-passkey-answer]").value = answer;
  } catch (problem) {
    say(form, reasons[problem.name] ?? unable);
    return;
  }
  form.dataset.answered = "yes";
  form.requestSubmit(button);
}

// Behind proof.js, which holds back what was pressed too soon after arriving from elsewhere.
document.addEventListener("submit", async (event) => {
  const { submitter: button, target: form } = event;
  if (!button?.dataset.passkey) return;
  if (form.dataset.answered) return void delete form.dataset.answered;
  event.preventDefault();
  event.stopImmediatePropagation();
  button.disabled = true;
  try {
    if (isAble) await askDevice(form, button);
    else say(form, unable);
  } finally {
    button.disabled = false;
  }
}, true);

for (const button of document.querySelectorAll("button[data-passkey]")) button.hidden = false;
for (const text of document.querySelectorAll(".without-script")) text.hidden = true; // older browsers: components.css does
