// Points and lines at a place between two layers of a flow.

/** @import { Scatter } from "./scatter.js" */
import { rowOf } from "./answers.js";
import { ink, inksByPlace } from "./scatter.js";

export class Flowing {
  constructor(/** @type {Layers} */ { steps, arrays }) {
    this.names = steps;
    this.arrays = arrays;
    this.last = steps.length - 1;
    this.points = arrays.path.shape[1];
    this.features = arrays.path.shape[2];
    this.at = 0; // 0 is the data, 1 the place after the first layer
    this.chosen = [0, Math.min(1, this.features - 1)]; // the features of the two axes
    this.coloured = { inks: new Uint8ClampedArray(), key: "" };
  }

  /** Returns the colours of the points by their place in the data, which change with the axes and the colour scheme. */
  inks() {
    const key = `${this.chosen} ${ink("--ink")}`;
    const place = (i) => this.chosen.map((feature) => this.arrays.below[i * this.features + feature]);
    if (this.coloured.key !== key) this.coloured = { key, inks: inksByPlace(this.points, place) };
    return this.coloured.inks;
  }

  inWords() {
    const { at, last, names } = this;
    const near = Math.round(at);
    if (Math.abs(at - near) > 0.02) return `between layers ${Math.floor(at)} and ${Math.ceil(at)} of ${last}`;
    return near ? `after layer ${near} of ${last}: ${names[near]}` : "the data";
  }

  /** @param {Scatter} scatter @param {boolean} withLines */
  paint(scatter, withLines) {
    const { path, lines } = this.arrays;
    scatter.points(this.points, this.placesOf(path), this.inks());
    if (lines && withLines) scatter.lines(lines.shape[1], lines.shape[2], this.placesOf(lines));
  }

  /** Returns a function from a point to its place, on its way from one layer to the next. @param {Shaped} path */
  placesOf(path) {
    const { at, last, features, chosen } = this;
    const first = Math.floor(at);
    const [from, to] = [rowOf(path, first), rowOf(path, Math.min(first + 1, last))];
    const part = (at - first) ** 2 * (3 - 2 * (at - first)); // slow at both ends
    const mix = (k) => from[k] + part * (to[k] - from[k]);
    return (i) => [mix(i * features + chosen[0]), mix(i * features + chosen[1])];
  }
}
