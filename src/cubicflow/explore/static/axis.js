// The ticks of a column's axis: round numbers or starts of seconds to years.

import { number } from "./page.js";

const DAY = 86400;
const STEPS = [1, 5, 15, 30, 60, 300, 900, 1800, 3600, 10800, 21600, 43200, DAY, 2 * DAY, 7 * DAY, 14 * DAY];
const MONTHS = [1, 2, 3, 6, 12, 24, 60, 120, 240, 600, 1200, 2400, 6000, 12000];
const LONG = 5; // characters of a label that has room beside its neighbours
const compact = new Intl.NumberFormat("en", { notation: "compact" });

/** Returns the share of an axis below a value. @param {number} value @param {number[]} ends */
export const share = (value, [low, high]) => (value - low) / (high - low);

/** Returns ticks, at most `room` + 1 of numbers and dates, and twice as many of words.
 * @param {Column} column @param {number} room @returns {Tick[]} */
export function ticksOf({ isDate, isList, ends: [low, high], bars }, room) {
  if (isDate) return dateTicks(low, high, room);
  if (!isList) {
    const ticks = numberTicks(low, high, room);
    return ticks.every(([, label]) => label.length <= LONG) ? ticks : numberTicks(low, high, Math.ceil(room / 2));
  }
  const every = Math.ceil(bars.length / (2 * room));
  return bars.map((label, i) => /** @type {Tick} */ ([i, label])).filter((_, i) => i % every === 0);
}

/** Returns at most `room` + 1 ticks, at multiples of 1, 2 or 5 times a power of ten.
 * @param {number} low @param {number} high @param {number} room @returns {Tick[]} */
export function numberTicks(low, high, room) {
  const least = (high - low) / room;
  const power = 10 ** Math.floor(Math.log10(least));
  const step = power * ([1, 2, 5].find((m) => m * power >= least * (1 - 1e-9)) ?? 10);
  const first = Math.ceil(low / step - 1e-9);
  const count = Math.floor(high / step + 1e-9) - first + 1;
  return Array.from({ length: Math.max(count, 0) }, (_, i) => {
    const value = (first + i) * step;
    const label = Math.abs(value) >= 10000 ? compact.format(value) : number(Number(value.toPrecision(6)), 6);
    return [value, label];
  });
}

/** Returns at most `room` + 1 ticks of dates, in seconds since 1970, at starts of seconds, minutes, hours, days, months
 * or years. @param {number} low @param {number} high @param {number} room */
export function dateTicks(low, high, room) {
  const least = (high - low) / room;
  const text = (seconds) => new Date(seconds * 1000).toISOString();
  const step = STEPS.find((seconds) => seconds >= least);
  const found = /** @type {Tick[]} */ ([]);
  if (step) {
    for (let v = Math.ceil(low / step) * step; v <= high; v += step)
      found.push([v, v % DAY === 0 ? text(v).slice(0, 10) : text(v).slice(11, step < 60 ? 19 : 16)]);
    return found;
  }
  const months = MONTHS.find((m) => m * 28 * DAY >= least) ?? 24000;
  const start = new Date(low * 1000).getUTCFullYear();
  const year = months > 12 ? Math.floor(start / (months / 12)) * (months / 12) : start;
  for (let month = 0; ; month += months) {
    const v = new Date(0).setUTCFullYear(year, month) / 1000;
    if (v > high) return found;
    if (v >= low) found.push([v, months >= 12 ? String(new Date(v * 1000).getUTCFullYear()) : text(v).slice(0, 7)]);
  }
}
