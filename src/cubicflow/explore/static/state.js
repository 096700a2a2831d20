// The state that all views share, and the notes under the head.

import { byId, make, number } from "./page.js";

export const state = {
  /** @type {Run | null} */
  run: null,
  /** Answers that are kept until the run changes, by their questions. @type {Map<string, Promise<any>>} */
  kept: new Map(),
  /** What the page has to say about the server or a change of the run. */
  news: "",
};

export function drawNotes(more = /** @type {string[]} */ ([])) {
  const { run, news } = state;
  const found = run?.notes ?? [];
  found.push(...more.filter((text) => !found.includes(text)));
  const at = run?.step ? ` It is shown at step ${number(run.step, 9)}.` : "";
  const words = {
    training: `This run is still training.${at} The page updates as training goes on.`,
    stopped: `This run was stopped before training ended.${at}`,
  };
  const notes = [news, words[run?.state ?? ""], ...found].filter(Boolean);
  byId("notes").replaceChildren(...notes.map((text) => make("p", { class: "note", text })));
}
