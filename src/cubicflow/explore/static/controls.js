// The control for a condition on one column: any value, one value (a slider), a range (two sliders), words, or missing.
// A context column always has exactly one value: its usual value, or one that the user sets.

/** @import { Column } from "./types" */
import { copy, fill, make, spelled, whole } from "./page.js";

const CHIPS = 24; // words with a button each; more words are typed

/** @typedef {"any" | "is" | "range" | "in" | "missing"} Mode */

export class Control {
  /** @param {Column} column @param {() => void} changed */
  constructor(column, changed) {
    this.column = column;
    this.changed = changed;
    /** @type {Mode} */
    this.mode = "any";
    /** @type {Set<string>} */
    this.words = new Set();
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
    const [low, high] = [column.edges[0], column.edges[column.edges.length - 1]];
    this.low = low;
    this.high = high;
    this.numbers = [0.5, 0.25, 0.75].map((share) => this.snap(low + share * (high - low))); // the value and both ends
  }

  /** Returns the nearest value of a column with steps. @param {number} value */
  snap(value) {
    const { step } = this.column;
    return step ? this.low + Math.round((value - this.low) / step) * step : value;
  }

  /** @param {Mode} mode */
  set(mode) {
    this.mode = mode;
    this.menu.value = mode;
    const { body } = this;
    if (mode === "in") body.replaceChildren(...this.wordButtons());
    else if (mode === "is") body.replaceChildren(...this.slider(0, "value of"));
    else if (mode === "range") {
      const [low, high] = [this.slider(1, "lowest"), this.slider(2, "highest")];
      body.replaceChildren(make("div", { class: "ends" }, make("div", {}, ...low), make("div", {}, ...high)));
    } else body.replaceChildren();
  }

  /** Sets the control to a condition of the address: words with | between them, a number, from..to, or ~ for missing.
   * @param {string} text */
  read(text) {
    const { column } = this;
    if (text === "~" && column.hasGaps) return this.set("missing");
    if (column.isList) {
      this.words = new Set(text.split("|").map(decoded));
      return this.set("in");
    }
    const numbers = text.split("..").map(Number);
    if (!numbers.every(Number.isFinite) || numbers.length > 2 - Number(column.isGiven)) return;
    this.numbers.splice(numbers.length - 1, numbers.length, ...numbers);
    this.set(numbers.length === 1 ? "is" : "range");
  }

  /** Returns the condition as a text of the address. */
  text() {
    if (this.mode === "missing") return "~";
    if (this.mode === "in") return [...this.words].map(encodeURIComponent).join("|");
    const numbers = this.mode === "range" ? this.numbers.slice(1) : this.numbers.slice(0, 1);
    return numbers.map((value) => String(Number(value.toPrecision(12)))).join("..");
  }

  /** Returns a slider and a text field for one of the numbers. @param {number} i @param {string} what */
  slider(i, what) {
    const { column, numbers } = this;
    const name = `${what} ${column.name}`;
    const step = column.step ?? (this.high - this.low) / 400;
    const bounds = { min: this.low, max: this.high, step };
    const range = make("input", { type: "range", ...bounds, value: numbers[i], "aria-label": name });
    const mode = column.isDate ? "text" : "decimal";
    const text = make("input", { type: "text", "aria-label": `${name}, as text`, inputmode: mode });
    const respell = () => (text.value = spelled(column, numbers[i]));
    respell();
    range.addEventListener("input", () => {
      numbers[i] = this.snap(Number(range.value));
      respell();
      this.changed();
    });
    text.addEventListener("change", () => {
      const given = parsed(column, text.value);
      if (!Number.isFinite(given)) return void respell();
      numbers[i] = given;
      range.value = String(given);
      this.changed();
    });
    return [range, text];
  }

  /** @param {string} word */
  toggle(word) {
    const had = this.words.has(word);
    if (this.column.isGiven) this.words.clear();
    if (had) this.words.delete(word);
    else this.words.add(word);
    this.set("in");
    this.changed();
  }

  wordButtons() {
    const { column } = this;
    const isShort = column.words <= CHIPS;
    const chips = (isShort ? column.menu : [...this.words]).map((text) => {
      const pressed = String(this.words.has(text));
      return make("button", { "aria-pressed": pressed, text, title: text, onclick: () => this.press(text) });
    });
    const group = make("div", { class: "chips", role: "group", "aria-label": `values of ${column.name}` }, ...chips);
    if (isShort) return [group];
    const id = `words-of-${column.name}`;
    const input = make("input", { type: "text", list: id, placeholder: `one of ${whole(column.words)} values` });
    input.ariaLabel = `add a value of ${column.name}`;
    input.addEventListener("change", () => input.value && this.toggle(input.value));
    return [group, input, make("datalist", { id }, ...column.menu.map((value) => make("option", { value })))];
  }

  /** Toggles the word of a button, which keeps the focus. @param {string} word */
  press(word) {
    this.toggle(word);
    const buttons = this.body.querySelectorAll("button");
    for (const button of buttons) if (button.textContent === word) button.focus();
  }

  /** Returns the condition in the form that the server reads; null for no condition. */
  condition() {
    const { column, mode } = this;
    const words = [...this.words];
    if (mode === "in" && words.length) return column.isGiven ? { is: words[0] } : { in: words };
    if (mode === "is") return { is: spelled(column, this.numbers[0]) };
    if (mode === "missing") return { missing: true };
    if (mode !== "range") return null;
    const [from, to] = this.numbers
      .slice(1)
      .sort((a, b) => a - b)
      .map((end) => spelled(column, end));
    return { from, to };
  }

  inWords() {
    const condition = this.condition();
    if (!condition) return this.column.usual ?? "";
    if (condition.in) return condition.in.join(" or ");
    if (condition.is !== undefined) return condition.is;
    return condition.missing ? "missing" : `${condition.from} to ${condition.to}`;
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

/** @param {string} text */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
