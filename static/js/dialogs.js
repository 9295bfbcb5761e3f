// Dialogs: openers (data-dialog="#id"), a press beside one closes it, and our own way of asking "are you sure?".
const confirmBox = document.querySelector("#confirm");

document.addEventListener("click", (event) => {
  const opener = event.target.closest("[data-dialog]");
  if (opener) {
    event.preventDefault(); // an opener may be a link to the same form as a page, for those without JavaScript
    opener.closest("[popover]")?.hidePopover();
    document.querySelector(opener.dataset.dialog)?.showModal();
  } else if (event.target instanceof HTMLDialogElement && pressedBeside(event.target, event)) {
    event.target.close();
  }
});

function pressedBeside(dialog, event) {
  const box = dialog.getBoundingClientRect();
  const inside = event.clientX >= box.left && event.clientX <= box.right
    && event.clientY >= box.top && event.clientY <= box.bottom;
  return !inside && event.detail > 0; // a click made by Enter has no place
}

// What the button says that was pressed, without its key.
function wordsOf(button) {
  const copy = button?.cloneNode(true);
  copy?.querySelectorAll("kbd, svg").forEach((part) => part.remove());
  return copy?.textContent.trim().replace(/\s+/g, " ");
}

function ask(question, button) {
  return new Promise((answer) => {
    confirmBox.querySelector("#confirm-question").textContent = question;
    confirmBox.querySelector("[value=yes]").textContent = wordsOf(button) || "Continue";
    confirmBox.returnValue = "no";
    confirmBox.addEventListener("close", () => answer(confirmBox.returnValue === "yes"), { once: true });
    confirmBox.showModal();
  });
}

if (confirmBox) {
  document.body.addEventListener("htmx:confirm", async (event) => {
    if (!event.detail.question) return;
    event.preventDefault();
    if (await ask(event.detail.question, event.detail.triggeringEvent?.submitter)) event.detail.issueRequest(true);
  });

  // Before htmx, which sends a form by its own means.
  document.addEventListener("submit", async (event) => {
    const { submitter, target } = event;
    const question = submitter?.dataset.confirm ?? target.dataset.confirm;
    const isLocked = submitter?.ariaDisabled === "true"; // read-first.js says why
    if (!question || target.dataset.confirmed || isLocked) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    if (!(await ask(question, submitter))) return;
    target.dataset.confirmed = "yes";
    if (submitter) submitter.click(); // htmx sends the value of the button that was clicked
    else target.requestSubmit();
    delete target.dataset.confirmed;
  }, true);
}
