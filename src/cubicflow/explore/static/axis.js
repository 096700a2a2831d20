// The axis of a column: its ends, its bins and its ticks. The server chose the edges of the bins.

/** @import { Column, Tick } from "./types" */
import { dateTicks, numberTicks } from "./ticks.js";

const LONG = 5; // characters of a label that has room beside its neighbours

/** Returns the ends of a column's axis. A word is in the middle of its unit. @param {Column} column */
export function range({ isList, edges, bars }) {
  return isList ? [-0.5, bars.length - 0.5] : [edges[0], edges[edges.length - 1]];
}

/** Returns the share of an axis below a value. @param {number} value @param {number[]} ends */
export function share(value, [low, high]) {
  return (value - low) / (high - low);
}

/** Returns ticks, at most `room` + 1 of numbers and dates, and twice as many of words.
 * @param {Column} column @param {number} room @returns {Tick[]} */
export function ticksOf(column, room) {
  const [low, high] = range(column);
  if (column.isDate) return dateTicks(low, high, room);
  if (!column.isList) {
    const ticks = numberTicks(low, high, room);
    return ticks.every(([, label]) => label.length <= LONG) ? ticks : numberTicks(low, high, Math.ceil(room / 2));
  }
  const every = Math.ceil(column.bars.length / (2 * room));
  return column.bars.flatMap((label, i) => (i % every ? [] : [/** @type {Tick} */ ([i, label])]));
}

/** Returns the number of a column's bins, without the bin of missing values, which is the last. @param {Column} column */
export function binsOf({ isList, edges, bars }) {
  return isList ? bars.length : edges.length - 1;
}

/** Returns the bin of a value on the axis: -1 beyond the axis. @param {Column} column @param {number} value */
export function binOf(column, value) {
  const { edges, isList } = column;
  if (Number.isNaN(value)) return binsOf(column);
  if (isList) return value;
  if (value < edges[0] || value >= edges[edges.length - 1]) return -1;
  let [low, high] = [0, edges.length - 1];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (edges[middle] <= value) low = middle;
    else high = middle;
  }
  return low;
}

/** Splits one long array into the masses of each column. @param {Column[]} columns @param {ArrayLike<number>} masses */
export function split(columns, masses) {
  const all = Array.from(masses);
  let start = 0;
  return columns.map((column) => {
    const first = start;
    start += binsOf(column) + 1;
    return all.slice(first, start);
  });
}

/** Returns the quantiles (5 %, 50 % and 95 %) of column i; NaN for words.
 * @param {{arrays: {quantiles: ArrayLike<number>}}} answer @param {number} i */
export function quantilesOf({ arrays }, i) {
  return [0, 1, 2].map((k) => arrays.quantiles[3 * i + k]);
}
