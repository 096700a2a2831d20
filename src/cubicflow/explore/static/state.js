// The state that all views share: the run, and answers of the server.

import { get } from "./framed.js";
import { make, number } from "./page.js";

export const state = { run: null, kept: new Map(), view: null, shown: 0 };

// Returns the answer for a path. Answers are cached until the run changes.
export function kept(path) {
  if (!state.kept.has(path)) {
    const answer = get(path);
    answer.catch(() => state.kept.delete(path));
    state.kept.set(path, answer);
  }
  return state.kept.get(path);
}

export function drawNotes(notes = []) {
  const all = new Set([...(state.run ? state.run.notes : []), ...notes]);
  if (state.run) state.run.notes = [...all];
  const { run } = state;
  const found = [...all];
  if (run && run.state === "training") found.unshift(`This run is still training. It is shown at step ${number(run.step, 9)}. The page updates as training goes on.`);
  if (run && run.state === "stopped") found.unshift(`This run was stopped before training ended.${run.step ? ` It is shown at step ${number(run.step, 9)}.` : ""}`);
  document.getElementById("notes").replaceChildren(...found.map((text) => make("p", { class: "note", text })));
}
