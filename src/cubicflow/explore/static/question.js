// The question of What if: conditions on columns, their address, and the answers to the latest question. No drawing.

/** @import { Control } from "./controls.js" */
import { post, working } from "./answers.js";
import { latest } from "./page.js";

const ENOUGH = 500; // effective size of an answer that is not refined
const PAUSE = 400; // milliseconds without a change before rows are drawn, or an answer is refined
const SHOWN = 12; // rows on the page

export const isRough = (/** @type {number | null} */ size) => size !== null && size < ENOUGH;

export class Question {
  /** @param {Control[]} controls
   * @param {{answer: (found: WhatIf, isLast: boolean) => void, rows: (found: Sample) => void,
   *   failed: (error: unknown, part: string) => void}} show */
  constructor(controls, show) {
    this.controls = controls;
    this.show = show;
    this.leaving = new AbortController(); // ends the slow requests of an earlier question
    this.ask = latest(() => this.answer());
  }

  conditions() {
    const found = this.controls.map((control) => [control.column.name, control.condition()]);
    return Object.fromEntries(found.filter(([, condition]) => condition));
  }

  /** Returns the conditions as names and texts of the address. */
  address() {
    return this.controls.flatMap((control) => control.texts().map((text) => [control.column.name, text]));
  }

  read(/** @type {URLSearchParams} */ address) {
    for (const control of this.controls) {
      const texts = address.getAll(control.column.name);
      if (texts.length) control.read(texts);
    }
  }

  /** Returns the address of a file of rows that meet the conditions. @param {string} n */
  file(n) {
    const question = { n, seed: "0", conditions: JSON.stringify(this.conditions()) };
    return `api/sample.csv?${new URLSearchParams(question)}`;
  }

  changed() {
    this.leaving.abort();
    this.leaving = new AbortController();
    this.ask();
    this.later("sample", { n: SHOWN, seed: 0 }, this.show.rows, "sample");
  }

  /** Shows the answer of the server, also while the user moves on. If too few rows are behind the answer to the latest
   * question, asks for a better one. */
  async answer() {
    const { signal } = this.leaving;
    try {
      const found = await post("what-if", { conditions: this.conditions() });
      const isLast = !isRough(found.effectiveSize) || signal.aborted;
      this.show.answer(found, isLast);
      if (!isLast) this.later("what-if", { refine: true }, (better) => this.show.answer(better, true), "wrong");
    } catch (error) {
      if (!signal.aborted) this.show.failed(error, "wrong");
    }
  }

  /** Asks a slow question after a pause, and drops it when the user moves on.
   * @param {string} name @param {object} about @param {(found: any) => void} show @param {string} part */
  async later(name, about, show, part) {
    const { signal } = this.leaving;
    await working(new Promise((done) => setTimeout(done, PAUSE)));
    if (signal.aborted) return;
    const found = post(name, { conditions: this.conditions(), ...about }, signal);
    await found.then(show).catch((error) => signal.aborted || this.show.failed(error, part));
  }
}
