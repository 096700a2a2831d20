// Questions to the server, its answers (safetensors files with a JSON header, src/cubicflow/explore/framed.py), and the
// state that all views share.

import { byId, make, number } from "./page.js";

const KINDS = { F32: Float32Array, F64: Float64Array, I32: Int32Array, U8: Uint8Array };
export const CHANGED = "run-changed"; // the event of an answer that belongs to another state of the run

export const state = {
  /** @type {Run | null} */
  run: null,
  /** Answers that are kept until the run changes, by their questions. @type {Map<string, Promise<any>>} */
  kept: new Map(),
  /** What the page has to say about the server or a change of the run. */
  news: "",
};

/** Shows notes under the head: those of the run, and more. */
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

export function decode(/** @type {ArrayBuffer} */ buffer) {
  const length = Number(new DataView(buffer).getBigUint64(0, true));
  const { __metadata__: notes, ...about } = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)));
  const arrays = {};
  for (const [name, { dtype, shape, data_offsets }] of Object.entries(about)) {
    const Kind = KINDS[dtype];
    const [first, end] = data_offsets;
    const array = new Kind(buffer, 8 + length + first, (end - first) / Kind.BYTES_PER_ELEMENT);
    arrays[name] = Object.assign(array, { shape });
  }
  return { ...JSON.parse(notes.answer), arrays };
}

/** Returns row i of an array. @param {Shaped} array @param {number} i */
export function rowOf(array, i) {
  const length = array.length / array.shape[0];
  return array.subarray(i * length, (i + 1) * length);
}

/** @template {string} Name @param {Name} name @param {RequestInit} [options] @returns {Promise<Answer<Name>>} */
export async function ask(name, options) {
  const response = await fetch(`api/${name}`, options);
  if (!response.ok) {
    const text = await response.text();
    throw new Error(text.startsWith("{") ? JSON.parse(text).error : text || `the server answered ${response.status}`);
  }
  const version = response.headers.get("x-cubicflow-run");
  if (state.run && version && version !== state.run.version && name !== "run") {
    document.dispatchEvent(new Event(CHANGED));
    throw new Error("The run has changed. The page opens its new state.");
  }
  return decode(await response.arrayBuffer());
}

/** @template {string} Name @param {Name} name @param {object | Blob} body @param {AbortSignal} [signal] */
export function post(name, body, signal) {
  const content = body instanceof Blob ? body : JSON.stringify(body);
  return working(ask(name, { method: "POST", body: content, headers: { "X-Cubicflow": "1" }, signal }));
}

/** Returns an answer that is kept until the run changes.
 * @template {string} Name @param {Name} name @returns {Promise<Answer<Name>>} */
export function kept(name) {
  const found = state.kept.get(name) ?? ask(name);
  found.catch(() => state.kept.delete(name));
  state.kept.set(name, found);
  return working(found);
}

// The view is busy while it waits for an answer. `data-ready` counts how often it had all its answers.
let view = 0;
let waiting = 0;

export function newView() {
  view += 1;
  waiting = 0;
  byId("view").dataset.ready = "0";
  return view;
}

/** @template T @param {Promise<T>} promise @returns {Promise<T>} */
export function working(promise) {
  const [mine, main] = [view, byId("view")];
  waiting += 1;
  main.setAttribute("aria-busy", "true");
  const done = () => {
    if (mine !== view) return;
    waiting -= 1;
    if (waiting) return;
    main.removeAttribute("aria-busy");
    main.dataset.ready = String(Number(main.dataset.ready) + 1);
  };
  promise.catch(() => {}).then(() => setTimeout(done)); // after the code that draws the answer
  return promise;
}
