// The state that all views share, and the notes under the head.

/** @import { Run } from "./types" */
import { byId, make, number } from "./page.js";

export const state = {
  /** @type {Run | null} */
  run: null,
  /** Answers that are kept until the run changes, by their paths. @type {Map<string, Promise<any>>} */
  kept: new Map(),
  /** What the shown view returned. @type {{leave?: () => void, stays?: boolean}} */
  view: {},
  /** What the page has to say about the server or a change of the run. */
  news: "",
};

export function drawNotes(notes = /** @type {string[]} */ ([])) {
  const { run, news } = state;
  if (run) run.notes = [...new Set([...run.notes, ...notes])];
  const found = [...(run ? run.notes : notes)];
  const at = run && run.step ? ` It is shown at step ${number(run.step, 9)}.` : "";
  if (run && run.state === "training")
    found.unshift(`This run is still training.${at} The page updates as training goes on.`);
  if (run && run.state === "stopped") found.unshift(`This run was stopped before training ended.${at}`);
  if (news) found.unshift(news);
  byId("notes").replaceChildren(...found.map((text) => make("p", { class: "note", text })));
}
