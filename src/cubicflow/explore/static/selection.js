// The rows inside a brush over two columns, and their masses in every column. No drawing.

/** @import { Column, Shaped } from "./types" */
import { binOf, binsOf, range, share } from "./axis.js";

export class Selection {
  /** Rows are positions (N, D) on the axes of columns. @param {Column[]} columns @param {Shaped} rows */
  constructor(columns, rows) {
    this.columns = columns;
    this.rows = rows;
    this.count = rows.shape[0];
    this.x = 0;
    this.y = 1;
    /** The brush, in shares of both axes. @type {{x: number[], y: number[]} | null} */
    this.brush = null;
    this.bins = columns.map((column, k) =>
      Int32Array.from({ length: this.count }, (_, i) => binOf(column, this.at(i, k))),
    );
    this.all = this.masses(() => true);
  }

  /** @param {number} i @param {number} column */
  at(i, column) {
    return this.rows[i * this.columns.length + column];
  }

  /** Returns a function from a row to its place in [0, 1] x [0, 1]. Words and whole numbers are spread around their
   * place, so that rows do not hide others. @param {Shaped} rows @returns {(i: number) => number[]} */
  placesOf(rows) {
    const count = this.columns.length;
    const axis = (k, wave, by) => {
      const column = this.columns[k];
      const spread = column.isList ? 0.7 : column.isWhole ? 0.6 * (column.step ?? 1) : 0;
      const shift = (i) => spread && spread * ((Math.abs(Math.sin(i * wave) * by) % 1) - 0.5);
      return (i) => share(rows[i * count + k] + shift(i), range(column));
    };
    const [u, v] = [axis(this.x, 12.9898, 43758.5453), axis(this.y, 78.233, 12543.123)];
    return (i) => [u(i), v(i)];
  }

  /** Selects a rectangle by two of its corners in [0, 1] x [0, 1]. @param {number[]} from @param {number[]} to */
  drag(from, to) {
    const [x, y] = [0, 1].map((k) => [Math.min(from[k], to[k]), Math.max(from[k], to[k])]);
    this.brush = { x, y };
  }

  /** Moves the brush by twentieths of the axes. Without a brush, one in the middle is moved.
   * @param {number[]} step */
  move([right, upwards]) {
    const { x, y } = this.brush ?? { x: [0.4, 0.6], y: [0.4, 0.6] };
    this.drag([x[0] + right / 20, y[0] + upwards / 20], [x[1] + right / 20, y[1] + upwards / 20]);
  }

  /** Returns a function that says whether the brush holds row i of rows. @param {Shaped} rows */
  holds(rows) {
    const { brush } = this;
    const place = this.placesOf(rows);
    return (i) => {
      const [u, v] = place(i);
      return brush !== null && u >= brush.x[0] && u <= brush.x[1] && v >= brush.y[0] && v <= brush.y[1];
    };
  }

  /** Returns the share of the chosen rows in every bin of every column, and their number.
   * @param {(i: number) => boolean} isChosen */
  masses(isChosen) {
    const counts = this.columns.map((column) => Array(binsOf(column) + 1).fill(0));
    let total = 0;
    for (let i = 0; i < this.count; i += 1) {
      if (!isChosen(i)) continue;
      total += 1;
      this.bins.forEach((bins, k) => bins[i] >= 0 && (counts[k][bins[i]] += 1));
    }
    return { total, columns: counts.map((each) => each.map((n) => n / Math.max(total, 1))) };
  }

  selected() {
    return this.masses(this.holds(this.rows));
  }
}
