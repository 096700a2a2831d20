// The control for a condition on one column: any value, one value (a slider), a range (two sliders), words, or missing.
// A context column always has exactly one value: its usual value, or one that the user sets.

import { make, spelled } from "./page.js";

const CHIPS = 24;

export class Control {
  constructor(column, changed) {
    this.column = column;
    this.changed = changed;
    this.mode = "any";
    this.words = new Set();
    const id = `c${Math.random().toString(36).slice(2)}`;
    const modes = column.isGiven ? [["any", `usual: ${column.usual}`], [column.isList ? "in" : "is", "is"]] : column.isList ? [["any", "any"], ["in", "is one of"]] : [["any", "any"], ["is", "is"], ["range", "is from … to"]];
    if (column.hasGaps) modes.push(["missing", "is missing"]);
    this.menu = make("select", { "aria-label": `condition on ${column.name}`, id }, ...modes.map(([value, text]) => make("option", { value, text })));
    this.menu.addEventListener("change", () => { this.mode = this.menu.value; this.drawBody(); this.changed(); });
    this.body = make("div", { class: "body" });
    this.element = make("div", { class: "condition" }, make("div", { class: "head" }, make("h3", {}, make("label", { for: id, text: column.name })), this.menu), this.body);
    if (!column.isList) {
      this.low = column.edges[0];
      this.high = column.edges[column.edges.length - 1];
      this.step = column.step || (this.high - this.low) / 400;
      this.value = this.snap((this.low + this.high) / 2);
      this.ends = [this.snap(this.low + (this.high - this.low) / 4), this.snap(this.high - (this.high - this.low) / 4)];
    }
  }

  snap(value) {
    const { column } = this;
    if (!column.step) return value;
    return column.edges[0] + Math.round((value - column.edges[0]) / column.step) * column.step;
  }

  set(mode, value) {
    this.mode = mode;
    this.menu.value = mode;
    if (mode === "in") this.words = new Set(value);
    if (mode === "is") this.value = value;
    if (mode === "range") this.ends = value;
    this.drawBody();
  }

  // Sets the control to a condition of the address: words with | between them, a number, from..to, or ~ for missing.
  read(text) {
    const { column } = this;
    if (text === "~" && column.hasGaps) this.set("missing");
    else if (column.isList) this.set("in", text.split("|").map(decoded));
    else if (text.includes("..") && !column.isGiven) this.set("range", text.split("..").map(Number));
    else if (Number.isFinite(Number(text))) this.set("is", Number(text));
  }

  // Returns the condition as a text of the address.
  text() {
    if (this.mode === "missing") return "~";
    if (this.mode === "in") return [...this.words].map(encodeURIComponent).join("|");
    const short = (value) => String(Number(value.toPrecision(12)));
    return this.mode === "range" ? this.ends.map(short).join("..") : short(this.value);
  }

  drawBody() {
    this.body.replaceChildren();
    if (this.mode === "in") this.drawWords();
    if (this.mode === "is") this.body.append(...this.slider(() => this.value, (v) => { this.value = v; }, "value of"));
    if (this.mode === "range") {
      const ends = [0, 1].map((i) => make("div", {}, ...this.slider(() => this.ends[i], (v) => { this.ends[i] = v; }, i ? "highest" : "lowest")));
      this.body.append(make("div", { class: "ends" }, ...ends));
    }
  }

  slider(read, write, what) {
    const { column } = this, name = `${what} ${column.name}`;
    const range = make("input", { type: "range", min: this.low, max: this.high, step: this.step, value: read(), "aria-label": name });
    const text = make("input", { type: "text", value: spelled(column, read()), "aria-label": `${name}, as text`, inputmode: column.isDate ? "text" : "decimal" });
    range.value = read();
    range.addEventListener("input", () => { write(this.snap(Number(range.value))); text.value = spelled(column, read()); this.changed(); });
    text.addEventListener("change", () => {
      const given = column.isDate ? Date.parse(text.value.replace(" ", "T") + (text.value.length > 10 ? "Z" : "")) / 1000 : Number(text.value.replace(/,/g, ""));
      if (Number.isFinite(given)) { write(given); range.value = given; this.changed(); } else text.value = spelled(column, read());
    });
    return [range, text];
  }

  add(word) {
    if (this.column.isGiven) this.words.clear();
    this.words.add(word);
  }

  drawWords() {
    const { column } = this;
    const chips = make("div", { class: "chips", role: "group", "aria-label": `values of ${column.name}` });
    const offered = column.words <= CHIPS ? column.menu : [...new Set([...this.words])];
    for (const word of offered) {
      const chip = make("button", { type: "button", "aria-pressed": String(this.words.has(word)), text: word, title: word });
      chip.addEventListener("click", () => {
        if (this.words.has(word)) this.words.delete(word);
        else this.add(word);
        for (const other of chips.children) other.setAttribute("aria-pressed", String(this.words.has(other.textContent)));
        if (column.words > CHIPS) this.drawBody();
        this.changed();
      });
      chips.append(chip);
    }
    this.body.append(chips);
    if (column.words > CHIPS) {
      const id = `l${Math.random().toString(36).slice(2)}`;
      const input = make("input", { type: "text", list: id, placeholder: `one of ${column.words.toLocaleString("en")} values`, "aria-label": `add a value of ${column.name}` });
      input.addEventListener("change", () => { if (input.value) { this.add(input.value); this.drawBody(); this.changed(); } });
      this.body.append(input, make("datalist", { id }, ...column.menu.map((word) => make("option", { value: word }))));
    }
  }

  // Returns the condition in the form that the server reads; null for no condition.
  condition() {
    const { column } = this;
    if (this.mode === "in") return this.words.size ? (column.isGiven ? { is: [...this.words][0] } : { in: [...this.words] }) : null;
    if (this.mode === "is") return { is: spelled(column, this.value) };
    if (this.mode === "range") {
      const [a, b] = [Math.min(...this.ends), Math.max(...this.ends)];
      return { from: spelled(column, a), to: spelled(column, b) };
    }
    return this.mode === "missing" ? { missing: true } : null;
  }

  inWords() {
    const condition = this.condition();
    if (!condition) return this.column.isGiven ? this.column.usual : "";
    if (condition.in) return condition.in.join(" or ");
    if (condition.is !== undefined) return condition.is;
    return condition.missing ? "missing" : `${condition.from} to ${condition.to}`;
  }
}

function decoded(text) {
  try { return decodeURIComponent(text); } catch { return text; }
}
