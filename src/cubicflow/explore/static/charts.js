// Pictures of one column: a density of numbers, drawn by uPlot, or bars of words, drawn by HTML elements. Also curves.

import uPlot from "./vendor/uPlot.js";
import { colour, make, percent, shownValue } from "./page.js";

const FONT = "12px system-ui, sans-serif";
const alive = new Set();

function axis(about = {}) {
  return { stroke: colour("--quiet"), font: FONT, grid: { show: false }, ticks: { stroke: colour("--line"), size: 4 }, gap: 3, ...about };
}

function fit(element, options, data) {
  const height = options.height;
  const chart = new uPlot({ ...options, width: Math.max(element.clientWidth, 120), height }, data, element);
  const watcher = new ResizeObserver(() => {
    if (element.clientWidth && element.isConnected) chart.setSize({ width: element.clientWidth, height });
  });
  watcher.observe(element);
  alive.add({ chart, watcher, element });
  return chart;
}

// Destroys the charts of views that are no longer shown.
export function sweep() {
  for (const each of alive) {
    if (!each.element.isConnected) { each.watcher.disconnect(); each.chart.destroy(); alive.delete(each); }
  }
}

function tick(column) {
  return (_, splits) => splits.map((v) => (v === null ? "" : Math.abs(v) >= 10000 ? new Intl.NumberFormat("en", { notation: "compact" }).format(v) : shownValue({ ...column, decimals: null }, v)));
}

const stepped = uPlot.paths.stepped({ align: 1 });

function steps(column, masses) {
  const edges = column.edges;
  const found = [];
  for (let i = 0; i + 1 < edges.length; i += 1) found.push(masses ? masses[i] / (edges[i + 1] - edges[i]) : null);
  found.push(found[found.length - 1]);
  return found;
}

// The density of a column of numbers: the data as a filled area, the model as a line with a band of two standard errors.
export class Density {
  constructor(column, { height = 132 } = {}) {
    this.column = column;
    this.element = make("div", { class: "chart", role: "img" });
    this.height = height;
  }

  draw({ data = null, model = null, errors = null, middle = NaN }) {
    const { column } = this;
    const low = errors && model ? steps(column, model.map((m, i) => Math.max(m - 2 * errors[i], 0))) : steps(column, null);
    const high = errors && model ? steps(column, model.map((m, i) => m + 2 * errors[i])) : steps(column, null);
    const values = [column.edges, steps(column, data), low, high, steps(column, model)];
    this.element.setAttribute("aria-label", `${column.name}: ${described(column, model || data, middle)}`);
    if (this.chart) { this.chart.setData(values); return; }
    const model_ = colour("--model");
    const plain = { points: { show: false }, paths: stepped };
    const top = { time: false, range: (_, __, max) => [0, (max || 1) * 1.06] };
    this.chart = fit(this.element, {
      height: this.height,
      padding: column.isDate ? [6, 20, 0, 20] : [6, 16, 0, 14],
      cursor: { y: false, drag: { setScale: false, x: false, y: false }, points: { show: false } },
      legend: { show: false },
      scales: { x: { time: column.isDate, range: [column.edges[0], column.edges[column.edges.length - 1]] }, y: top },
      axes: [axis(column.isDate ? { size: 38 } : { size: 26, values: tick(column), space: 56 }), axis({ show: false })],
      series: [{}, { ...plain, fill: colour("--data"), width: 0 }, { ...plain, width: 0 }, { ...plain, width: 0 }, { ...plain, stroke: model_, width: 1.8 }],
      bands: [{ series: [3, 2], fill: colour("--model-soft") }],
    }, values);
  }
}

// The masses of words, as bars.
export class Bars {
  constructor(column, { most = 24 } = {}) {
    this.column = column;
    this.most = most;
    this.element = make("div", { class: "bars", role: "img" });
    // The bar of all other words comes first, because the list may be longer than its window.
    const count = column.bars.length, first = column.hasOthers ? [count - 1] : [];
    this.places = [...first, ...Array(count - first.length).keys(), ...(column.hasGaps ? [count] : [])];
    this.labels = this.places.map((i) => (i < count ? column.bars[i] : "missing"));
  }

  draw({ data = null, model = null, errors = null }) {
    const shares = this.places.map((i) => ({ model: model ? model[i] : 0, data: data ? data[i] : 0, error: errors ? errors[i] : 0 }));
    const top = Math.max(...shares.map((s) => Math.max(s.model, s.data)), 1e-9);
    this.element.setAttribute("aria-label", `${this.column.name}: ${described(this.column, model || data)}`);
    const width = (share) => `${(100 * share) / top}%`;
    if (!this.rows) {
      this.rows = this.labels.slice(0, this.most + 1).map((label) => {
        const parts = { data: make("span", { class: "of-data" }), model: make("span", { class: "of-model" }), share: make("span", { class: "share" }) };
        this.element.append(make("span", { class: "word", title: label, text: label }), make("span", { class: "track" }, parts.data, parts.model), parts.share);
        return parts;
      });
    }
    this.rows.forEach((parts, i) => {
      parts.data.style.width = width(shares[i].data);
      parts.model.style.width = width(shares[i].model);
      parts.share.textContent = percent(model ? shares[i].model : shares[i].data);
      parts.share.title = errors ? `± ${percent(2 * shares[i].error)}` : "";
    });
  }
}

export function picture(column, about) {
  return column.isList ? new Bars(column, about) : new Density(column, about);
}

// Describes in words what a picture shows, for screen readers.
function described(column, masses, middle) {
  if (!masses) return "nothing yet";
  if (column.isList) {
    const order = column.bars.map((name, i) => [masses[i], name]).sort((a, b) => b[0] - a[0]);
    return order.slice(0, 3).map(([share, name]) => `${name} ${percent(share)}`).join(", ");
  }
  return Number.isNaN(middle) ? "no values" : `median ${shownValue(column, middle)}`;
}

// Returns the three quantiles (5 %, 50 % and 95 %) of column i; NaN for words.
export function quantilesOf(answer, i) {
  return Array.from(answer.arrays.quantiles.subarray(3 * i, 3 * i + 3));
}

// Draws curves with a common x axis. Each curve is {x, y, stroke, width, label}.
export function curves(lines, { height = 200, xLabel, yLabel, yRange, square } = {}) {
  const element = make("div", { class: "chart", role: "img", "aria-label": [yLabel, xLabel].filter(Boolean).join(" against ") });
  queueMicrotask(() => requestAnimationFrame(() => {
    if (!element.isConnected) return;
    const tall = square ? Math.min(element.clientWidth, 300) : height;
    fit(element, {
      height: tall,
      padding: [8, 10, 0, 4],
      legend: { show: false },
      cursor: { drag: { setScale: false, x: false, y: false } },
      scales: { x: { time: false }, y: yRange ? { range: yRange } : {} },
      axes: [axis({ label: xLabel, labelFont: FONT, labelSize: xLabel ? 20 : 0, size: 28 }), axis({ label: yLabel, labelFont: FONT, labelSize: yLabel ? 20 : 0, size: 46, grid: { show: true, stroke: colour("--line"), width: 1 } })],
      series: [{}, ...lines.map((line) => ({ label: line.label, stroke: line.stroke, width: line.width || 1.4, dash: line.dash, points: { show: false }, spanGaps: true }))],
    }, uPlot.join(lines.map((line) => [Array.from(line.x), Array.from(line.y)])));
  }));
  return element;
}

// Splits one long array into the masses of each column.
export function split(columns, masses) {
  const found = [];
  let start = 0;
  for (const column of columns) {
    const count = (column.isList ? column.bars.length : column.edges.length - 1) + 1;
    found.push(masses ? Array.from(masses.subarray(start, start + count)) : null);
    start += count;
  }
  return found;
}
