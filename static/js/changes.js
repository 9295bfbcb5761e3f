// What a session changed: a file that its reader has opened or closed stays so when the list is drawn anew.
window.Idiomorph.defaults.callbacks.beforeNodeMorphed = (before, after) => {
  if (before.matches?.("details.changed-file") && after.matches?.("details.changed-file")) after.open = before.open;
};
