// The control for a condition on one column: any value, one value (a slider), a range (two sliders), words, or missing.
// A context column always has exactly one value: its usual value, or one that the user sets.

import { copy, fill, make, spelled, whole } from "./page.js";

const CHIPS = 24; // words with a button each; more words are typed

/** @typedef {"any" | "is" | "range" | "in" | "missing"} Mode */

export class Control {
  /** @param {Column} column @param {() => void} changed */
  constructor(column, changed) {
    this.column = column;
    this.changed = changed;
    this.mode = /** @type {Mode} */ ("any");
    this.words = /** @type {Set<string>} */ (new Set());
    const { content, name, menu, body } = copy("condition");
    this.element = content.firstElementChild;
    this.menu = menu;
    this.body = body;
    name.textContent = column.name;
    menu.ariaLabel = `condition on ${column.name}`;
    fill(menu, modesOf(column), "any");
    menu.addEventListener("change", () => {
      this.set(menu.value);
      this.changed();
    });
    const [low, high] = column.ends;
    this.numbers = [0.5, 0.25, 0.75].map((share) => this.snap(low + share * (high - low))); // the value and both ends
  }

  /** Returns the nearest value of a column with steps. @param {number} value */
  snap(value) {
    const { step, ends } = this.column;
    return step ? ends[0] + Math.round((value - ends[0]) / step) * step : value;
  }

  set(/** @type {Mode} */ mode) {
    this.mode = mode;
    this.menu.value = mode;
    const ends = () => [this.slider(1, "lowest"), this.slider(2, "highest")].map((end) => make("div", {}, ...end));
    const parts = { in: () => this.wordButtons(), is: () => this.slider(0, "value of"), range: ends };
    this.body.replaceChildren(...(parts[mode]?.() ?? []));
    this.body.classList.toggle("ends", mode === "range");
  }

  /** Sets the control to a condition of the address: words, or one text, which is a number, from..to, or ~ for missing.
   * @param {string[]} texts */
  read(texts) {
    const { column } = this;
    if (texts[0] === "~" && column.hasGaps) return this.set("missing");
    if (column.isList) {
      this.words = new Set(texts);
      return this.set("in");
    }
    const numbers = texts[0].split("..").map((text) => parsed(column, text));
    if (!numbers.every(Number.isFinite) || numbers.length > 2 - Number(column.isGiven)) return;
    this.numbers.splice(numbers.length - 1, numbers.length, ...numbers);
    this.set(numbers.length === 1 ? "is" : "range");
  }

  /** Returns the condition as texts of the address. */
  texts() {
    const condition = this.condition();
    if (!condition) return [];
    const { is, from, to } = condition;
    return condition.in ?? [condition.missing ? "~" : (is ?? `${from}..${to}`)];
  }

  /** Returns a slider and a text field for one of the numbers. @param {number} i @param {string} what */
  slider(i, what) {
    const { column, numbers } = this;
    const name = `${what} ${column.name}`;
    const [min, max] = column.ends;
    const bounds = { min, max, step: column.step ?? (max - min) / 400 };
    const range = make("input", { type: "range", ...bounds, "aria-label": name });
    const mode = column.isDate ? "text" : "decimal";
    const text = make("input", { type: "text", "aria-label": `${name}, as text`, inputmode: mode });
    const show = () => ([range.value, text.value] = [String(numbers[i]), spelled(column, numbers[i])]);
    const take = (/** @type {number} */ value) => {
      if (!Number.isFinite(value)) return void show();
      numbers[i] = value;
      show();
      this.changed();
    };
    show();
    range.addEventListener("input", () => take(this.snap(Number(range.value))));
    text.addEventListener("change", () => take(parsed(column, text.value)));
    return [range, text];
  }

  /** Returns buttons of all words, or of the chosen ones and a field for others. */
  wordButtons() {
    const { column, words } = this;
    const isShort = column.words <= CHIPS;
    const group = make("div", { class: "chips", role: "group", "aria-label": `values of ${column.name}` });
    const shown = () => (isShort ? column.menu : [...words]);
    const button = (text) =>
      make("button", { "aria-pressed": String(words.has(text)), text, title: text, onclick: () => toggle(text) });
    const toggle = (/** @type {string} */ word) => {
      const had = words.delete(word);
      if (column.isGiven) words.clear();
      if (!had) words.add(word);
      const hasFocus = group.contains(document.activeElement);
      group.replaceChildren(...shown().map(button));
      if (hasFocus) /** @type {HTMLElement} */ (group.children[shown().indexOf(word)])?.focus();
      this.changed();
    };
    group.append(...shown().map(button));
    if (isShort) return [group];
    const id = `words-of-${column.name}`;
    const input = make("input", { type: "text", list: id, placeholder: `one of ${whole(column.words)} values` });
    input.ariaLabel = `add a value of ${column.name}`;
    input.addEventListener("change", () => {
      if (input.value) toggle(input.value);
      input.value = "";
    });
    return [group, input, make("datalist", { id }, ...column.menu.map((value) => make("option", { value })))];
  }

  /** Returns the condition in the form that the server reads; null for no condition. */
  condition() {
    const { column, mode } = this;
    const words = [...this.words];
    if (mode === "in" && words.length) return column.isGiven ? { is: words[0] } : { in: words };
    if (mode === "is") return { is: spelled(column, this.numbers[0]) };
    if (mode === "missing") return { missing: true };
    if (mode !== "range") return null;
    const ends = this.numbers.slice(1);
    if (!column.isCircle) ends.sort((a, b) => a - b); // an arc may cross the seam of a circle
    const [from, to] = ends.map((end) => spelled(column, end));
    return { from, to };
  }

  inWords() {
    const condition = this.condition();
    if (!condition) return this.column.usual ?? "";
    const { is, from, to } = condition;
    return is ?? condition.in?.join(" or ") ?? (condition.missing ? "missing" : `${from} to ${to}`);
  }
}

/** @param {Column} column @returns {[Mode, string][]} */
function modesOf({ isList, isGiven, hasGaps, usual }) {
  /** @type {[Mode, string, boolean][]} */
  const modes = [
    ["any", isGiven ? `usual: ${usual}` : "any", true],
    ["in", isGiven ? "is" : "is one of", isList],
    ["is", "is", !isList],
    ["range", "is from … to", !isList && !isGiven],
    ["missing", "is missing", hasGaps],
  ];
  return modes.flatMap(([mode, text, isOffered]) => (isOffered ? [[mode, text]] : []));
}

/** @param {Column} column @param {string} text */
function parsed(column, text) {
  if (!column.isDate) return text.trim() ? Number(text.replace(/,/g, "")) : NaN;
  return Date.parse(text.replace(" ", "T") + (text.length > 10 ? "Z" : "")) / 1000;
}
