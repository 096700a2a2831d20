// Small elements that all views use. Text is inserted as text: no string is ever parsed as HTML.

export function make(tag, about = {}, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(about)) {
    if (value === undefined || value === null || value === false) continue;
    if (key === "class") element.className = value;
    else if (key === "text") element.textContent = value;
    else if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

export function loading(text = "Working") {
  return make("p", { class: "loading", role: "status", text: `${text} …` });
}

export function failed(error) {
  return make("p", { class: "error", role: "alert", text: error.message });
}

export function empty(title, text) {
  return make("div", { class: "empty" }, make("h2", { text: title }), make("p", { text }));
}

export function number(value, digits = 4) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e9)) return value.toExponential(2);
  return Number(value.toPrecision(digits)).toLocaleString("en", { maximumFractionDigits: 10 });
}

export function percent(share) {
  if (share === null || Number.isNaN(share)) return "–";
  const value = 100 * share;
  return `${value >= 99.95 || value < 0.05 ? (value >= 99.95 ? "100" : value > 0 ? "<0.1" : "0") : value.toFixed(value < 9.95 ? 1 : 0)} %`;
}

// Writes the choices of the user into the address, so that a reloaded view has them again.
export function remember(view, choices) {
  const text = new URLSearchParams(choices).toString();
  history.replaceState(null, "", `#/${view}${text ? `?${text}` : ""}`);
}

// Makes a sentence of a message that starts with a small letter and has no full stop.
export function sentence(text) {
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}${text.endsWith(".") ? "" : "."}`;
}

// Formats a value of a column as the table writes it.
export function spelled(column, value) {
  if (column.isDate) {
    const text = new Date(value * 1000).toISOString();
    return column.step && column.step % 86400 === 0 ? text.slice(0, 10) : text.slice(0, 19).replace("T", " ");
  }
  if (column.decimals !== null && column.decimals !== undefined) return value.toFixed(column.decimals);
  return String(Number(value.toPrecision(6)));
}

export function shownValue(column, value) {
  if (column.isDate) return spelled(column, value);
  return column.decimals === null ? number(value) : Number(value.toFixed(column.decimals)).toLocaleString("en", { maximumFractionDigits: 10 });
}

export function table(columns, cells, about = {}) {
  const isNumber = columns.map((_, i) => cells.length > 0 && cells.every((row) => row[i] === "" || !Number.isNaN(Number(row[i]))));
  const kind = (i) => (isNumber[i] ? "number" : undefined);
  return make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": about.label },
    make("table", {},
      make("thead", {}, make("tr", {}, ...columns.map((name, i) => make("th", { scope: "col", class: kind(i), text: name })))),
      make("tbody", {}, ...cells.map((row) => make("tr", {}, ...row.map((cell, i) => make("td", { class: kind(i), title: cell, text: cell })))))));
}

// Runs a function once at a time. After a run, it runs again with the latest arguments of calls made meanwhile.
export function latest(work) {
  let running = false, waiting = null;
  return async function run(...given) {
    if (running) { waiting = given; return; }
    running = true;
    try { await work(...given); } finally {
      running = false;
      if (waiting) { const next = waiting; waiting = null; run(...next); }
    }
  };
}
