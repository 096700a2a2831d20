// Charts in SVG. The colours are in the stylesheet, and all places are shares of the chart, so a chart is drawn once for
// all widths and colour schemes. Labels are HTML, because the browser can shorten them.

import { numberTicks, share, ticksOf } from "./axis.js";
import { card, make, percent, shownValue } from "./page.js";

const NAMESPACE = "http://www.w3.org/2000/svg";
const SIDE = 1000; // units of a drawing in each direction
const TOP = 1.06; // height of the axis, in units of the highest value

/** @typedef {ArrayLike<number> | null} Masses
 * @typedef {{data?: Masses, model?: Masses, errors?: Masses, quantiles?: ArrayLike<number>}} Picture */

/** @param {string} tag @param {Record<string, string>} about @param {...Node} children */
function svg(tag, about, ...children) {
  const element = document.createElementNS(NAMESPACE, tag);
  for (const [key, value] of Object.entries(about)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

const drawing = (...paths) => svg("svg", { viewBox: `0 0 ${SIDE} ${SIDE}`, preserveAspectRatio: "none" }, ...paths);
const place = (value, ends) => Math.round(10 * SIDE * share(value, ends)) / 10;

/** @param {number[][]} points @param {number[]} x  ends of the axis @param {number[]} y */
function pathOf(points, x, y) {
  return points.length ? `M${points.map(([u, v]) => `${place(u, x)} ${SIDE - place(v, y)}`).join("L")}` : "";
}

/** Returns the labels of an axis: below the chart, or to its left.
 * @param {"across" | "up"} axis @param {Tick[]} ticks @param {number[]} ends */
export function labels(axis, ticks, ends) {
  const room = ticks.length > 1 ? share(ticks[1][0], ends) - share(ticks[0][0], ends) : 1;
  return ticks.map(([value, text]) => {
    const found = make("span", { class: `tick ${axis}`, text, title: text });
    found.style.setProperty(axis === "across" ? "left" : "bottom", `${100 * share(value, ends)}%`);
    if (axis === "across") found.style.maxWidth = `${100 * Math.max(room, 0.1)}%`;
    return found;
  });
}

/** Makes the picture of a column of numbers: the data as a filled area, the model as a line with a band of two standard
 * errors. @param {Column} column @param {number} height  in pixels */
function density(column, height) {
  const { edges, ends } = column;
  const paths = ["data", "band", "model"].map((name) => svg("path", { class: name }));
  const ticks = labels("across", ticksOf(column, column.isDate ? 3 : 5), ends);
  const element = make("div", { class: "chart", role: "img" }, drawing(...paths), ...ticks);
  element.style.height = `${height}px`;
  const draw = (/** @type {Picture} */ { data, model, errors, quantiles }) => {
    const steps = (/** @type {(i: number) => number} */ mass) =>
      edges.slice(1).flatMap((right, i) => [edges[i], right].map((x) => [x, mass(i) / (right - edges[i])]));
    const bound = (two) => (model && errors ? steps((i) => Math.max(model[i] + two * errors[i], 0)) : []);
    const [area, line] = [data, model].map((masses) => (masses ? steps((i) => masses[i]) : []));
    const band = [...bound(2), ...bound(-2).reverse()];
    const top = TOP * Math.max(0, ...[...area, ...line, ...band].map(([, level]) => level)) || 1;
    const outlines = [area.length ? [[ends[0], 0], ...area, [ends[1], 0]] : [], band, line];
    paths.forEach((path, i) => path.setAttribute("d", pathOf(outlines[i], ends, [0, top])));
    element.setAttribute("aria-label", `${column.name}: ${inWords(column, quantiles)}`);
  };
  return { element, draw };
}

/** @param {Column} column @param {ArrayLike<number>} [quantiles]  the levels 5 %, 50 % and 95 % */
export function inWords(column, quantiles) {
  if (!quantiles || Number.isNaN(quantiles[1])) return "no values";
  const [low, middle, high] = Array.from(quantiles, (value) => shownValue(column, value));
  return `median ${middle}, 90 % from ${low} to ${high}`;
}

/** Makes the picture of a column of words: bars. @param {Column} column */
function bars(column) {
  // The bar of all other words comes first, because the list may be longer than its window.
  const first = column.hasOthers ? [column.bins - 1] : [];
  const bins = [...first, ...Array(column.bins - first.length).keys(), ...(column.hasGaps ? [column.bins] : [])];
  const rows = bins.map((bin) => {
    const name = column.bars[bin] ?? "missing";
    const [data, model, share] = ["of-data", "of-model", "share"].map((kind) => make("span", { class: kind }));
    const word = make("span", { class: "word", title: name, text: name });
    return { bin, data, model, share, cells: [word, make("span", { class: "track" }, data, model), share] };
  });
  const about = { class: "bars", role: "group", tabindex: 0, "aria-label": column.name };
  const element = make("div", about, ...rows.flatMap(({ cells }) => cells));
  const draw = (/** @type {Picture} */ { data, model, errors }) => {
    const highest = Math.max(...bins.flatMap((bin) => [data?.[bin] ?? 0, model?.[bin] ?? 0]), 1e-9);
    for (const { bin, data: behind, model: front, share } of rows) {
      behind.style.width = `${(100 * (data?.[bin] ?? 0)) / highest}%`;
      front.style.width = `${(100 * (model?.[bin] ?? 0)) / highest}%`;
      share.textContent = percent((model ?? data ?? [])[bin]);
      share.title = errors ? `± ${percent(2 * errors[bin])}` : "";
    }
  };
  return { element, draw };
}

/** A card with the picture of a column, and words below. */
export class ColumnCard {
  /** @param {Column} column @param {number} height  of a density, in pixels */
  constructor(column, height) {
    this.column = column;
    this.picture = column.isList ? bars(column) : density(column, height);
    this.words = make("p", { class: "quiet small" });
    this.about = make("span", { class: "quiet small", text: column.kind, title: column.about });
    this.element = card(column.name, this.about, this.picture.element, this.words);
  }

  draw(/** @type {Picture} */ picture, words = "") {
    this.picture.draw(picture);
    this.words.textContent = words;
  }
}

/** Draws curves with common axes. The class of a curve is the name of its colour.
 * @param {{x: ArrayLike<number>, y: ArrayLike<number>, kind: string}[]} lines
 * @param {{x: number[], y: number[], label: string, kind?: string}} about */
export function curves(lines, { x, y, label, kind = "" }) {
  const [ticks, levels] = [numberTicks(x[0], x[1], 5), numberTicks(y[0], y[1], 4)];
  const rules = levels.map(([level]) => ({ kind: "rule", x, y: [level, level] }));
  const paths = [...rules, ...lines].map((line) => {
    const points = Array.from(line.x, (value, i) => [value, line.y[i]]);
    return svg("path", { class: line.kind, d: pathOf(points, x, y) });
  });
  const about = { class: `chart with-levels ${kind}`, role: "img", "aria-label": label };
  return make("div", about, drawing(...paths), ...labels("across", ticks, x), ...labels("up", levels, y));
}
