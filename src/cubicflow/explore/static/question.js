// The question of What if: conditions on columns, their address, and the answers to the latest question. No drawing.

/** @import { WhatIf, Sample } from "./types" */
/** @import { Control } from "./controls.js" */
import { post } from "./answers.js";
import { latest } from "./page.js";

const ENOUGH = 500; // effective size of an answer that is not refined
const PAUSE = 400; // milliseconds without a change before rows are drawn
const SHOWN = 12; // rows on the page

/** @param {WhatIf} answer */
export const isRough = ({ effectiveSize }) => effectiveSize !== null && effectiveSize < ENOUGH;

export class Question {
  /** @param {Control[]} controls
   * @param {{answer: (found: WhatIf, isLast: boolean) => void, rows: (found: Sample) => void,
   *   failed: (error: unknown, part: "answer" | "rows") => void}} show */
  constructor(controls, show) {
    this.controls = controls;
    this.show = show;
    this.timer = 0;
    this.leaving = new AbortController(); // ends the slow requests of an earlier question
    this.ask = latest(() => this.answers());
  }

  conditions() {
    const found = this.controls.map((control) => [control.column.name, control.condition()]);
    return Object.fromEntries(found.filter(([, condition]) => condition));
  }

  /** @returns {[string, string][]} */
  address() {
    const set = this.controls.filter((control) => control.condition());
    return set.map((control) => [control.column.name, control.text()]);
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
    const { signal } = this.leaving;
    this.timer = window.setTimeout(() => this.sample(signal), PAUSE);
  }

  leave() {
    this.leaving.abort();
    window.clearTimeout(this.timer);
  }

  /** Shows the answer of the server. If too few rows are behind it, asks for a better one and shows it as well. */
  async answers() {
    const { signal } = this.leaving;
    const conditions = this.conditions();
    try {
      const found = await post("api/what-if", { conditions });
      if (signal.aborted) return;
      this.show.answer(found, !isRough(found));
      if (!isRough(found)) return;
      const refined = post("api/what-if", { conditions, refine: true }, signal);
      refined
        .then((better) => signal.aborted || this.show.answer(better, true))
        .catch((error) => this.fail(error, signal));
    } catch (error) {
      this.fail(error, signal);
    }
  }

  /** @param {AbortSignal} signal */
  async sample(signal) {
    try {
      const found = await post("api/sample", { conditions: this.conditions(), n: SHOWN, seed: 0 }, signal);
      if (!signal.aborted) this.show.rows(found);
    } catch (error) {
      this.fail(error, signal, "rows");
    }
  }

  /** @param {unknown} error @param {AbortSignal} signal @param {"answer" | "rows"} part */
  fail(error, signal, part = "answer") {
    if (!signal.aborted) this.show.failed(error, part);
  }
}
