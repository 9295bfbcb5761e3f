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

function ask(question) {
  return new Promise((answer) => {
    confirmBox.querySelector("#confirm-question").textContent = question;
    confirmBox.returnValue = "no";
    confirmBox.addEventListener("close", () => answer(confirmBox.returnValue === "yes"), { once: true });
    confirmBox.showModal();
  });
}

if (confirmBox) {
  document.body.addEventListener("htmx:confirm", async (event) => {
    if (!event.detail.question) return;
    event.preventDefault();
    if (await ask(event.detail.question)) event.detail.issueRequest(true);
  });

  document.addEventListener("submit", async (event) => {
    const question = event.submitter?.dataset.confirm ?? event.target.dataset.confirm;
    if (!question || event.target.dataset.confirmed) return;
    event.preventDefault();
    if (!(await ask(question))) return;
    event.target.dataset.confirmed = "yes";
    event.target.requestSubmit(event.submitter);
    delete event.target.dataset.confirmed;
  });
}
