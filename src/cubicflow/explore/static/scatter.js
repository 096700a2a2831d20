// Points on a canvas: many points as their density, a few points as dots. Places are in [0, 1] x [0, 1].

import { make } from "./page.js";

/** @typedef {(i: number) => number[]} Place */
/** @typedef {ArrayLike<number>} Inks  red, green and blue of every point, or of all points */

const MANY = 20000; // more than MANY points are drawn as a density
const CORNERS = ["--place-left-low", "--place-right-low", "--place-left-high", "--place-right-high"];
const PER_CELL = 6; // points of an average cell
const MOST_CELLS = 200; // largest side of a density, in cells
const DARKEST = 2.2; // density of an opaque cell, in units of the mean density
const RECOLOUR = "recolour";

/** Draws all canvases of the page again, because the colour scheme has changed. */
export function recolour() {
  document.querySelectorAll("canvas").forEach((canvas) => canvas.dispatchEvent(new Event(RECOLOUR)));
}

function penOf(/** @type {HTMLCanvasElement} */ canvas) {
  const pen = canvas.getContext("2d");
  if (!pen) throw new Error("the browser cannot draw on a canvas");
  return pen;
}

/** Returns red, green and blue of a colour of the stylesheet, 0 to 255. @param {string} name */
export function ink(name) {
  const colour = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  return [1, 3, 5].map((start) => Number.parseInt(colour.slice(start, start + 2), 16));
}

/** A canvas as sharp as the screen. `paint` draws on it; it is called again for another size or colour scheme. */
export class Scatter {
  /** @param {string} label @param {(scatter: Scatter) => void} paint @param {Record<string, any>} [about] */
  constructor(label, paint, about) {
    this.canvas = make("canvas", { role: "img", "aria-label": label, ...about });
    this.pen = penOf(this.canvas);
    this.paint = paint;
    this.width = this.height = 0;
    this.canvas.addEventListener(RECOLOUR, () => this.repaint());
    new ResizeObserver(() => this.repaint()).observe(this.canvas);
  }

  repaint() {
    const { canvas, pen } = this;
    const scale = window.devicePixelRatio || 1;
    [this.width, this.height] = [canvas.clientWidth, canvas.clientHeight];
    if (!this.width || !this.height) return;
    [canvas.width, canvas.height] = [Math.round(this.width * scale), Math.round(this.height * scale)];
    pen.scale(canvas.width / this.width, canvas.height / this.height);
    this.paint(this);
  }

  /** Draws points. @param {number} count @param {Place} place @param {Inks} inks
   * @param {{alpha?: number, size?: number, only?: (i: number) => boolean}} [about] */
  points(count, place, inks, { alpha, size = 5, only } = {}) {
    const { pen, width, height } = this;
    if (count > MANY && !only) return void pen.drawImage(cloud(count, place, inks), 0, 0, width, height);
    // Dots stay apart: their size falls with their number.
    const side = Math.min(size, Math.max(1.2, (0.32 * Math.min(width, height)) / Math.sqrt(count)));
    const stride = inks.length === 3 ? 0 : 3;
    pen.globalAlpha = alpha ?? (side > 2 ? 0.85 : 0.6);
    pen.fillStyle = `rgb(${inks[0]},${inks[1]},${inks[2]})`;
    for (let i = 0; i < count; i += 1) {
      if (only && !only(i)) continue;
      const [u, v] = place(i);
      if (!isInside(u, v)) continue;
      if (stride) pen.fillStyle = `rgb(${inks[3 * i]},${inks[3 * i + 1]},${inks[3 * i + 2]})`;
      pen.fillRect(u * width - side / 2, (1 - v) * height - side / 2, side, side);
    }
    pen.globalAlpha = 1;
  }

  /** Draws lines of `length` points each. @param {number} count @param {number} length @param {Place} place */
  lines(count, length, place) {
    const { pen, width, height } = this;
    pen.globalAlpha = 0.4;
    pen.strokeStyle = `rgb(${ink("--ink")})`;
    pen.beginPath();
    for (let i = 0; i < count * length; i += 1) {
      const [u, v] = place(i);
      pen[i % length ? "lineTo" : "moveTo"](u * width, (1 - v) * height);
    }
    pen.stroke();
    pen.globalAlpha = 1;
  }

  /** Draws a picture over the whole canvas, without smoothing. @param {HTMLCanvasElement} picture */
  image(picture) {
    this.pen.imageSmoothingEnabled = false;
    this.pen.drawImage(picture, 0, 0, this.width, this.height);
    this.pen.imageSmoothingEnabled = true;
  }
}

/** @param {number} u @param {number} v */
const isInside = (u, v) => u >= 0 && u <= 1 && v >= 0 && v <= 1;

/** Returns the colours (count, 3) of points by their places: a mixture of four colours, one for each corner.
 * @param {number} count @param {Place} place */
export function inksByPlace(count, place) {
  const corners = CORNERS.map(ink);
  const found = new Uint8ClampedArray(3 * count);
  for (let i = 0; i < count; i += 1) {
    const [u, v] = place(i);
    const shares = [(1 - u) * (1 - v), u * (1 - v), (1 - u) * v, u * v];
    for (let c = 0; c < 3; c += 1) found[3 * i + c] = shares.reduce((sum, part, k) => sum + part * corners[k][c], 0);
  }
  return found;
}

/** Returns the density of points on a canvas of its own. Each point is shared between the four nearest cells. The colour
 * of a cell is the mean colour of its points. @param {number} count @param {Place} place @param {Inks} inks */
function cloud(count, place, inks) {
  const cells = Math.max(8, Math.min(MOST_CELLS, Math.round(Math.sqrt(count / PER_CELL))));
  const sums = new Float32Array(4 * cells * cells);
  const stride = inks.length === 3 ? 0 : 3;
  const nearest = (cell) => Math.max(0, Math.min(cells - 1, cell));
  for (let i = 0; i < count; i += 1) {
    const [u, v] = place(i);
    if (!isInside(u, v)) continue;
    const [x, y] = [u * cells - 0.5, (1 - v) * cells - 0.5];
    const [left, upper] = [Math.floor(x), Math.floor(y)];
    for (let corner = 0; corner < 4; corner += 1) {
      const [a, b] = [left + (corner & 1), upper + (corner >> 1)];
      const share = (1 - Math.abs(x - a)) * (1 - Math.abs(y - b));
      const at = 4 * (nearest(b) * cells + nearest(a));
      for (let c = 0; c < 3; c += 1) sums[at + c] += share * inks[stride * i + c];
      sums[at + 3] += share;
    }
  }
  const top = (DARKEST * count) / (cells * cells);
  return pixels(cells, cells, (i) => {
    const [red, green, blue, weight] = sums.subarray(4 * i, 4 * i + 4);
    return [red / weight, green / weight, blue / weight, 255 * Math.min(1, weight / top)];
  });
}

/** Returns a canvas of pixels; `colour` gives red, green, blue and opacity of pixel i, from the upper left.
 * @param {number} wide @param {number} tall @param {(i: number) => number[]} colour */
export function pixels(wide, tall, colour, canvas = make("canvas")) {
  [canvas.width, canvas.height] = [wide, tall];
  const pen = penOf(canvas);
  const image = pen.createImageData(wide, tall);
  for (let i = 0; i < wide * tall; i += 1) image.data.set(colour(i), 4 * i);
  pen.putImageData(image, 0, 0);
  return canvas;
}
