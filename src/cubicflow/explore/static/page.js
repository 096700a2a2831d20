// Small elements that all views use. Text is inserted as text: no string is ever parsed as HTML.

/** Makes an element. Keys of `about` are attributes, `text`, or `on` and the name of an event.
 * @template {keyof HTMLElementTagNameMap} K @returns {HTMLElementTagNameMap[K]}
 * @param {K} tag @param {Record<string, any>} [about] @param {...(Node | string)} children */
export function make(tag, about = {}, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(about)) {
    if (value === undefined || value === null || value === false) continue;
    if (key === "text") element.textContent = value;
    else if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : String(value));
  }
  element.append(...children);
  return element;
}

export function byId(/** @type {string} */ id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no element ${id}`);
  return found;
}

/** Copies a template of index.html. Returns its content, and its elements by their data-part.
 * @param {string} id @returns {Record<string, any>} */
export function copy(id) {
  const content = /** @type {HTMLTemplateElement} */ (byId(id)).content.cloneNode(true);
  const parts = [.../** @type {DocumentFragment} */ (content).querySelectorAll("[data-part]")];
  return { content, ...Object.fromEntries(parts.map((part) => [part.getAttribute("data-part"), part])) };
}

export const quiet = (/** @type {string} */ text) => make("p", { class: "quiet small", text });

export const loading = (text = "Working") => make("p", { class: "loading", role: "status", text: `${text} …` });

export const failed = (/** @type {unknown} */ error) =>
  make("p", { class: "error", role: "alert", text: error instanceof Error ? error.message : String(error) });

/** @param {string} title @param {string} text */
export const empty = (title, text) => make("div", { class: "empty" }, make("h2", { text: title }), make("p", { text }));

/** Makes a card with a heading, and what is beside and below it. @param {string} name @param {...Node} content */
export function card(name, beside, ...content) {
  const head = make("header", {}, make("h3", { text: name, title: name }), beside);
  return make("article", { class: "card" }, head, ...content);
}

/** @param {HTMLSelectElement} menu @param {[value: string, text: string][]} choices @param {any} value */
export function fill(menu, choices, value) {
  menu.replaceChildren(...choices.map(([v, text]) => make("option", { value: v, text })));
  menu.value = String(value);
}

/** Makes a table. Each row has the cells of a line. @param {string} label @param {string[]} names
 * @param {string[][]} lines */
export function table(label, names, lines, kind = "") {
  const isNumber = names.map((_, i) => lines.length > 0 && lines.every((line) => !Number.isNaN(Number(line[i] || 0))));
  const cells = (tag, line, about = {}) =>
    line.map((text, i) => make(tag, { class: isNumber[i] && "number", title: text, text, ...about }));
  const rows = lines.map((line) => make("tr", {}, ...cells("td", line)));
  const head = make("thead", {}, make("tr", {}, ...cells("th", names, { scope: "col" })));
  const element = make("table", {}, head, make("tbody", {}, ...rows));
  const region = { class: `scroll ${kind}`, tabindex: 0, role: "region", "aria-label": label };
  return { rows, element: make("div", region, element) };
}

/** Writes the choices of the user into the address, so that a reloaded view has them again.
 * @param {string} view @param {Record<string, string> | string[][]} choices  names and texts */
export function remember(view, choices) {
  const text = new URLSearchParams(choices).toString();
  history.replaceState(null, "", `#/${view}${text && `?${text}`}`);
}

export const remembered = () => new URLSearchParams(location.hash.split("?")[1] ?? "");

/** Runs a function once at a time. If it was called meanwhile, it runs once more. @param {() => Promise<void>} work */
export function latest(work) {
  let [isRunning, isWaiting] = [false, false];
  return async function run() {
    isWaiting = true;
    if (isRunning) return;
    isRunning = true;
    while (isWaiting) {
      isWaiting = false;
      await work();
    }
    isRunning = false;
  };
}

// --- values as text ---

export function number(/** @type {number | null} */ value, digits = 4) {
  if (value === null || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e9)) return value.toExponential(2);
  return Number(value.toPrecision(digits)).toLocaleString("en", { maximumFractionDigits: 10 });
}

export const whole = (/** @type {number} */ count) => count.toLocaleString("en");

export function percent(/** @type {number} */ share) {
  if (Number.isNaN(share)) return "–";
  const value = 100 * share;
  if (value < 0.05) return value > 0 ? "<0.1 %" : "0 %";
  return `${value.toFixed(value < 9.95 ? 1 : 0)} %`;
}

/** Makes a sentence of a message that starts with a small letter and has no full stop. @param {string} text */
export const sentence = (text) => `${text.charAt(0).toUpperCase()}${text.slice(1)}${text.endsWith(".") ? "" : "."}`;

/** Formats a value of a column as the table writes it. @param {Column} column @param {number} value */
export function spelled({ isDate, step, decimals }, value) {
  if (!isDate) return decimals === null ? String(Number(value.toPrecision(6))) : value.toFixed(decimals);
  const text = new Date(value * 1000).toISOString();
  return step && step % 86400 === 0 ? text.slice(0, 10) : text.slice(0, 19).replace("T", " ");
}

/** Formats a value of a column for readers. @param {Column} column @param {number} value */
export function shownValue(column, value) {
  if (column.isDate && Number.isFinite(value)) return spelled(column, value);
  return column.decimals === null ? number(value) : number(Number(value.toFixed(column.decimals)), 12);
}
