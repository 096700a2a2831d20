// The question of What if: conditions on columns, their address, and the answers to the latest question. No drawing.

/** @import { WhatIf, Sample } from "./types" */
/** @import { Control } from "./controls.js" */
import { post, working } from "./answers.js";
import { latest } from "./page.js";

const ENOUGH = 500; // effective size of an answer that is not refined
const PAUSE = 400; // milliseconds without a change before rows are drawn, or an answer is refined
const SHOWN = 12; // rows on the page

/** @param {WhatIf} answer */
export const isRough = ({ effectiveSize }) => effectiveSize !== null && effectiveSize < ENOUGH;

export class Question {
  /** @param {Control[]} controls
   * @param {{answer: (found: WhatIf, isLast: boolean) => void, rows: (found: Sample) => void,
   *   failed: (error: unknown, part: string) => void}} show */
  constructor(controls, show) {
    this.controls = controls;
    this.show = show;
    this.leaving = new AbortController(); // ends the slow requests of an earlier question
    this.ask = latest(() => this.answers());
  }

  conditions() {
    const found = this.controls.map((control) => [control.column.name, control.condition()]);
    return Object.fromEntries(found.filter(([, condition]) => condition));
  }

  address() {
    const set = this.controls.filter((control) => control.condition());
    return Object.fromEntries(set.map((control) => [control.column.name, control.text()]));
  }

  /** @param {URLSearchParams} address */
  read(address) {
    for (const control of this.controls) {
      const text = address.get(control.column.name);
      if (text !== null) control.read(text);
    }
  }

  /** Returns the address of a file of rows that meet the conditions. @param {string} n */
  file(n) {
    const question = { n, seed: "0", conditions: JSON.stringify(this.conditions()) };
    return `api/sample.csv?${new URLSearchParams(question)}`;
  }

  changed() {
    this.leave();
    this.leaving = new AbortController();
    this.ask();
    this.sample();
  }

  leave() {
    this.leaving.abort();
  }

  /** Shows the answer of the server, also while the user moves on. If too few rows are behind the answer to the latest
   * question, asks for a better one. */
  async answers() {
    const { signal } = this.leaving;
    const conditions = this.conditions();
    try {
      const found = await post("api/what-if", { conditions });
      const isLast = !isRough(found) || signal.aborted;
      this.show.answer(found, isLast);
      if (!isLast) this.refine(conditions, signal);
    } catch (error) {
      this.fail(error, signal);
    }
  }

  async refine(conditions, signal) {
    if (!(await rested(signal))) return;
    const found = post("api/what-if", { conditions, refine: true }, signal);
    await found.then((better) => this.show.answer(better, true)).catch((error) => this.fail(error, signal));
  }

  async sample() {
    const { signal } = this.leaving;
    if (!(await rested(signal))) return;
    const found = post("api/sample", { conditions: this.conditions(), n: SHOWN, seed: 0 }, signal);
    await found.then((rows) => this.show.rows(rows)).catch((error) => this.fail(error, signal, "sample"));
  }

  /** @param {unknown} error @param {AbortSignal} signal */
  fail(error, signal, part = "wrong") {
    if (!signal.aborted) this.show.failed(error, part);
  }
}

/** Waits for a pause, and returns whether the question is still the latest. @param {AbortSignal} signal */
async function rested(signal) {
  await working(new Promise((done) => setTimeout(done, PAUSE)));
  return !signal.aborted;
}
