// Points and lines at a place between two layers of a flow.

/** @import { Layers } from "./types" */
/** @import { Scatter } from "./scatter.js" */
import { ink, inksByPlace } from "./scatter.js";

const OUTERMOST = 0.002; // fraction of the points beyond the picture, on either side

export class Flowing {
  /** @param {Layers} found */
  constructor({ steps, arrays }) {
    const { path, lines } = arrays;
    this.names = steps;
    this.path = path;
    this.lines = lines;
    this.steps = path.shape[0];
    this.points = path.shape[1];
    this.features = path.shape[2];
    this.at = 0; // 0 is the data, 1 the place after the first layer
    this.chosen = [0, Math.min(1, this.features - 1)]; // the features of the two axes
    this.ends = this.measured();
    this.coloured = { inks: new Uint8ClampedArray(), key: "" };
  }

  /** @param {number} axis @param {number} feature */
  choose(axis, feature) {
    this.chosen[axis] = feature;
    this.ends = this.measured();
  }

  /** Returns a feature of all points after a layer. @param {number} step @param {number} feature */
  values(step, feature) {
    const { path, points, features } = this;
    return Float32Array.from({ length: points }, (_, i) => path[(step * points + i) * features + feature]);
  }

  /** Returns the ends of both axes after every layer. */
  measured() {
    const axes = (_, step) => this.chosen.map((feature) => endsOf(this.values(step, feature).sort()));
    return Array.from({ length: this.steps }, axes);
  }

  /** Returns the colours of the points by their place in the data, which change with the axes and the colour scheme. */
  inks() {
    const key = `${this.chosen} ${ink("--ink")}`;
    if (this.coloured.key !== key) {
      const [u, v] = this.chosen.map((feature) => sharesBelow(this.values(0, feature)));
      this.coloured = { key, inks: inksByPlace(this.points, (i) => [u[i], v[i]]) };
    }
    return this.coloured.inks;
  }

  inWords() {
    const [near, last] = [Math.round(this.at), this.steps - 1];
    if (Math.abs(this.at - near) < 0.02)
      return near ? `after layer ${near} of ${last}: ${this.names[near]}` : "the data";
    return `between layers ${Math.floor(this.at)} and ${Math.ceil(this.at)} of ${last}`;
  }

  /** @param {Scatter} scatter @param {boolean} withLines */
  paint(scatter, withLines) {
    const { path, points, features, chosen, lines, steps } = this;
    const first = Math.floor(this.at);
    const next = Math.min(first + 1, steps - 1);
    const part = this.at - first;
    const ease = part * part * (3 - 2 * part);
    const mix = (a, b) => a + (b - a) * ease;
    const [x, y] = [0, 1].map((k) => {
      const [low, high] = [0, 1].map((end) => mix(this.ends[first][k][end], this.ends[next][k][end]));
      return (a, b) => (mix(a, b) - low) / (high - low);
    });
    const place = (i) => {
      const [a, b] = [(first * points + i) * features, (next * points + i) * features];
      return [x(path[a + chosen[0]], path[b + chosen[0]]), y(path[a + chosen[1]], path[b + chosen[1]])];
    };
    scatter.points(points, place, this.inks());
    if (!lines || !withLines) return;
    const [, count, length] = lines.shape;
    const { pen, width, height } = scatter;
    pen.globalAlpha = 0.4;
    pen.strokeStyle = `rgb(${ink("--ink")})`;
    pen.beginPath();
    for (let i = 0; i < count * length; i += 1) {
      const [a, b] = [2 * (first * count * length + i), 2 * (next * count * length + i)];
      const at = [x(lines[a], lines[b]) * width, (1 - y(lines[a + 1], lines[b + 1])) * height];
      if (i % length) pen.lineTo(at[0], at[1]);
      else pen.moveTo(at[0], at[1]);
    }
    pen.stroke();
    pen.globalAlpha = 1;
  }
}

/** @param {Float32Array} sorted */
function endsOf(sorted) {
  const last = sorted.length - 1;
  if (sorted[0] >= 0 && sorted[last] <= 1) return [0, 1];
  const [low, high] = [OUTERMOST, 1 - OUTERMOST].map((level) => sorted[Math.round(level * last)]);
  const margin = 0.05 * (high - low) || 1;
  return [low - margin, high + margin];
}

/** Returns the share of values below each value, so that the colours of crowded places differ as well.
 * @param {Float32Array} values */
function sharesBelow(values) {
  const order = Uint32Array.from(values.keys()).sort((a, b) => values[a] - values[b]);
  const found = new Float32Array(values.length);
  order.forEach(
    (i, rank) => (found[i] = rank && values[i] === values[order[rank - 1]] ? found[order[rank - 1]] : rank),
  );
  return found.map((rank) => rank / values.length);
}
