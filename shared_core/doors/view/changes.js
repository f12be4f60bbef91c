// What the page changes: it erases what was shown before and confirmed.

const dialog = document.getElementById("dialog");

/** Open the dialog with these elements; the first heading names it. */
function openDialog(title, ...children) {
  const head = el("h2", "", title);
  head.id = "dialog-title";
  dialog.replaceChildren(head, ...children.filter(Boolean));
  if (!dialog.open) dialog.showModal();
}

const closing = (text = "Cancel") => button("open", text, () => dialog.close());

/** Show what would be erased, and erase it when that is confirmed. `ids`: the messages; null: the whole session. */
async function askForget(session, ids, done, problem = null) {
  const which = ids === null ? { session, whole: true } : { session, ids };
  let dry;
  try {
    dry = await change("forget", which);
  } catch (error) {
    return openDialog("Nothing was erased", complaint(error), el("p", "buttons", closing("Close")));
  }
  if (!dry.messages) return openDialog("Nothing to erase", el("p", "", "No message is stored here any more."), el("p", "buttons", closing("Close")));
  const listed = (some) => el("ul", "erased", ...some.map(({ role, text }) => el("li", "", el("b", "", role ?? ""), " ", isolated("span", "", text || "(empty)"))));
  const more = dry.messages - dry.shown.length;
  const erase = button("danger", `Erase ${plural(dry.messages, "message")} for good`, async () => {
    erase.disabled = true;
    try {
      const { reason } = await change("forget", { ...which, confirmation: dry.confirmation });
      dialog.close();
      done(reason);
    } catch (error) {
      if (error.code === "stale_confirmation") askForget(session, ids, done, error);
      else openDialog("Nothing was erased", complaint(error), el("p", "buttons", closing("Close")));
    }
  });
  const some = dry.messages === 1 ? "It is erased" : "These messages go together; they are erased";
  const all = ids === null ? "All of this session, with its branches, is erased" : `${some} on all branches`;
  const cancel = closing();
  openDialog(
    ids === null ? "Erase this session?" : "Erase this message?", problem && complaint(problem),
    el("p", "", `${all}: from the store, its indexes and its files. This cannot be undone.`),
    listed(dry.shown), more > 0 ? el("p", "quiet", `and ${plural(more, "more message")}`) : null,
    ...(dry.stay.length ? [el("p", "", "What was said in the same turn stays, and may repeat it:"), listed(dry.stay)] : []),
    el("p", "buttons", erase, cancel),
  );
  cancel.focus();
}
