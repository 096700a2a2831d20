// The rows inside a brush over two columns, and their masses in every column. No drawing.

export class Selection {
  /** @param {Column[]} columns @param {Points["arrays"]} arrays */
  constructor(columns, { data, model, bins }) {
    this.columns = columns;
    this.rows = data ?? model;
    this.count = this.rows.shape[0];
    this.bins = bins;
    this.x = 0;
    this.y = 1;
    /** The brush, in shares of both axes. @type {{x: number[], y: number[]} | null} */
    this.brush = null;
    this.all = this.masses(() => true);
  }

  /** Returns a function from a row to its place over the two columns. @param {Shaped} rows
   * @returns {(i: number) => number[]} */
  placesOf(rows) {
    const { x, y, columns } = this;
    return (i) => [rows[i * columns.length + x], rows[i * columns.length + y]];
  }

  /** Selects a rectangle by two of its corners. @param {number[]} from @param {number[]} to */
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
    const { x, y } = this.brush ?? { x: [1, 0], y: [1, 0] };
    const place = this.placesOf(rows);
    return (i) => {
      const [u, v] = place(i);
      return u >= x[0] && u <= x[1] && v >= y[0] && v <= y[1];
    };
  }

  /** Returns the share of the chosen rows in every bin of every column, and their number.
   * @param {(i: number) => boolean} isChosen */
  masses(isChosen) {
    const columns = this.columns.map((column) => Array(column.bins + 1).fill(0));
    const rows = Array.from({ length: this.count }, (_, i) => i).filter(isChosen);
    for (const i of rows)
      columns.forEach((masses, k) => {
        const bin = this.bins[i * columns.length + k];
        if (bin >= 0) masses[bin] += 1 / rows.length; // a row beyond the axis has no bin
      });
    return { total: rows.length, columns };
  }
}
