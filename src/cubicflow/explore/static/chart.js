// Charts in SVG. The colours are in the stylesheet, and all places are shares of the chart, so a chart is drawn once for
// all widths and colour schemes. Labels are HTML, because the browser can shorten them.

/** @import { Column, Tick } from "./types" */
import { range, share, ticksOf } from "./axis.js";
import { make, percent, shownValue } from "./page.js";
import { numberTicks } from "./ticks.js";

const NAMESPACE = "http://www.w3.org/2000/svg";
const SIDE = 1000; // units of a drawing in each direction
const TOP = 1.06; // height of the axis, in units of the highest value

/** @param {string} tag @param {Record<string, string>} about @param {...Node} children */
function svg(tag, about, ...children) {
  const element = document.createElementNS(NAMESPACE, tag);
  for (const [key, value] of Object.entries(about)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

const drawing = (...paths) => svg("svg", { viewBox: `0 0 ${SIDE} ${SIDE}`, preserveAspectRatio: "none" }, ...paths);
const place = (value, ends) => Math.round(10 * SIDE * share(value, ends)) / 10;

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

/** Returns the path over steps, without its start. Edge i and edge i + 1 are the ends of height i.
 * @param {number[]} edges @param {number[]} heights */
function over(edges, heights) {
  return heights.map((height, i) => `V${height}H${edges[i + 1]}`).join("");
}

/** The density of a column of numbers: the data as a filled area, the model as a line with a band of two standard
 * errors. */
export class Density {
  /** @param {Column} column @param {{height?: number}} [about] */
  constructor(column, { height = 104 } = {}) {
    const ends = range(column);
    this.column = column;
    this.edges = column.edges.map((edge) => place(edge, ends));
    this.paths = ["data", "band", "model"].map((name) => svg("path", { class: name }));
    const ticks = labels("across", ticksOf(column, column.isDate ? 3 : 5), ends);
    this.element = make("div", { class: "chart", role: "img" }, drawing(...this.paths), ...ticks);
    this.element.style.height = `${height}px`;
  }

  /** @param {Picture} picture */
  draw({ data, model, errors, quantiles }) {
    const { column, edges } = this;
    const wide = column.edges.slice(1).map((edge, i) => edge - column.edges[i]);
    const density = (mass) => wide.map((width, i) => mass(i) / width);
    const of = (masses) => density((i) => masses[i]);
    const bounds = model && errors && [-2, 2].map((two) => density((i) => Math.max(model[i] + two * errors[i], 0)));
    const [area, line] = [data && of(data), model && of(model)];
    const highest = Math.max(...(area ?? [0]), ...(line ?? [0]), ...(bounds ? bounds[1] : [0])) || 1;
    const to = (heights) => heights.map((height) => SIDE - place(height, [0, TOP * highest]));
    const [first, last] = [edges[0], edges[edges.length - 1]];
    const drawn = ["", "", ""];
    if (area) drawn[0] = `M${first} ${SIDE}${over(edges, to(area))}V${SIDE}Z`;
    if (bounds) {
      const [low, high] = bounds.map(to);
      drawn[1] = `M${first} ${low[0]}${over(edges, high)}${over(edges.slice().reverse(), low.reverse())}Z`;
    }
    if (line) drawn[2] = `M${first} ${to(line)[0]}${over(edges, to(line))}H${last}`;
    this.paths.forEach((path, i) => path.setAttribute("d", drawn[i]));
    this.element.setAttribute("aria-label", `${column.name}: ${inWords(column, quantiles)}`);
  }
}

/** @typedef {{data?: number[] | null, model?: number[] | null, errors?: number[] | null, quantiles?: number[]}} Picture */

/** @param {Column} column @param {number[]} [quantiles] */
export function inWords(column, [low, middle, high] = [NaN, NaN, NaN]) {
  const shown = (value) => shownValue(column, value);
  return Number.isNaN(middle) ? "no values" : `median ${shown(middle)}, 90 % from ${shown(low)} to ${shown(high)}`;
}

/** Draws curves with common axes. The class of a curve is the name of its colour.
 * @param {{x: ArrayLike<number>, y: ArrayLike<number>, kind: string}[]} lines
 * @param {{x: number[], y: number[], label: string, kind?: string}} about */
export function curves(lines, { x, y, label: text, kind = "" }) {
  const [ticks, levels] = [numberTicks(x[0], x[1], 5), numberTicks(y[0], y[1], 4)];
  const rules = levels.map(([level]) => `M0 ${SIDE - place(level, y)}H${SIDE}`).join("");
  const paths = lines.map((line) => {
    const points = Array.from(line.x, (value, i) => `${place(value, x)} ${SIDE - place(line.y[i], y)}`);
    return svg("path", { class: line.kind, d: `M${points.join("L")}` });
  });
  const content = [drawing(svg("path", { class: "rule", d: rules }), ...paths), ...labels("across", ticks, x)];
  const about = { class: `chart with-levels ${kind}`, role: "img", "aria-label": text };
  return make("div", about, ...content, ...labels("up", levels, y));
}

// --- words ---

/** The masses of words, as bars. */
export class Bars {
  /** @param {Column} column */
  constructor(column) {
    // The bar of all other words comes first, because the list may be longer than its window.
    const count = column.bars.length;
    const first = column.hasOthers ? [count - 1] : [];
    const bins = [...first, ...Array(count - first.length).keys(), ...(column.hasGaps ? [count] : [])];
    this.column = column;
    this.element = make("div", { class: "bars", role: "img", tabindex: 0 });
    this.rows = bins.map((bin) => {
      const name = column.bars[bin] ?? "missing";
      const [data, model, share] = ["of-data", "of-model", "share"].map((kind) => make("span", { class: kind }));
      const track = make("span", { class: "track" }, data, model);
      this.element.append(make("span", { class: "word", title: name, text: name }), track, share);
      return { bin, name, data, model, share };
    });
  }

  /** @param {Picture} picture */
  draw({ data, model, errors }) {
    const masses = model ?? data ?? [];
    const highest = Math.max(...this.rows.flatMap(({ bin }) => [data?.[bin] ?? 0, model?.[bin] ?? 0]), 1e-9);
    for (const { bin, data: behind, model: front, share } of this.rows) {
      behind.style.width = `${(100 * (data?.[bin] ?? 0)) / highest}%`;
      front.style.width = `${(100 * (model?.[bin] ?? 0)) / highest}%`;
      share.textContent = percent(masses[bin]);
      share.title = errors ? `± ${percent(2 * errors[bin])}` : "";
    }
    const order = this.rows.slice().sort((a, b) => masses[b.bin] - masses[a.bin]);
    const most = order.slice(0, 3).map(({ bin, name }) => `${name} ${percent(masses[bin])}`);
    this.element.setAttribute("aria-label", `${this.column.name}: ${most.join(", ")}`);
  }
}

/** @param {Column} column @param {{height?: number}} [about] */
export function picture(column, about) {
  return column.isList ? new Bars(column) : new Density(column, about);
}
