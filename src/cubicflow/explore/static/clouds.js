// Clouds of points: many points are drawn as their density, a few points as dots.

import { colour, make } from "./page.js";

const CORNERS = ["--place-left-low", "--place-right-low", "--place-left-high", "--place-right-high"];
const PER_CELL = 6; // points of an average cell
const MOST_CELLS = 200; // largest side of a density, in cells
const DARKEST = 2.2; // density of an opaque cell, in units of the mean density

// Returns red, green and blue of a colour of the stylesheet, 0 to 255.
export function ink(name) {
  const pen = make("canvas").getContext("2d", { willReadFrequently: true });
  pen.fillStyle = colour(name);
  pen.fillRect(0, 0, 1, 1);
  return Array.from(pen.getImageData(0, 0, 1, 1).data.subarray(0, 3));
}

// Returns the colours (count, 3) of points by their places in [0, 1] x [0, 1]: a mixture of four colours, one for each
// corner. Points outside the square have the colour of the nearest edge.
export function inksByPlace(count, place) {
  const corners = CORNERS.map(ink), found = new Uint8ClampedArray(3 * count);
  const inside = (v) => Math.min(1, Math.max(0, v));
  for (let i = 0; i < count; i += 1) {
    const [u, v] = place(i).map(inside);
    for (let c = 0; c < 3; c += 1) {
      const low = corners[0][c] + u * (corners[1][c] - corners[0][c]), high = corners[2][c] + u * (corners[3][c] - corners[2][c]);
      found[3 * i + c] = low + v * (high - low);
    }
  }
  return found;
}

// Draws the density of points in [0, 1] x [0, 1] on a canvas of its own. Each point is shared between the four nearest
// cells. The colour of a cell is the mean colour of its points. `inks` has one colour for each point, or one for all.
export function cloud(count, place, inks) {
  const cells = Math.max(8, Math.min(MOST_CELLS, Math.round(Math.sqrt(count / PER_CELL))));
  const sums = new Float32Array(4 * cells * cells), single = inks.length === 3;
  for (let i = 0; i < count; i += 1) {
    const [u, v] = place(i);
    if (!(u >= 0 && u <= 1 && v >= 0 && v <= 1)) continue;
    const x = u * cells - 0.5, y = (1 - v) * cells - 0.5, a = Math.floor(x), b = Math.floor(y), k = single ? 0 : 3 * i;
    for (const [column, row, share] of [[a, b, (1 - x + a) * (1 - y + b)], [a + 1, b, (x - a) * (1 - y + b)], [a, b + 1, (1 - x + a) * (y - b)], [a + 1, b + 1, (x - a) * (y - b)]]) {
      const at = 4 * (Math.max(0, Math.min(cells - 1, row)) * cells + Math.max(0, Math.min(cells - 1, column)));
      sums[at] += share * inks[k]; sums[at + 1] += share * inks[k + 1]; sums[at + 2] += share * inks[k + 2]; sums[at + 3] += share;
    }
  }
  const canvas = make("canvas");
  canvas.width = cells; canvas.height = cells;
  const pen = canvas.getContext("2d"), image = pen.createImageData(cells, cells), top = (DARKEST * count) / (cells * cells);
  for (let at = 0; at < sums.length; at += 4) {
    const weight = sums[at + 3] || 1;
    for (let c = 0; c < 3; c += 1) image.data[at + c] = sums[at + c] / weight;
    image.data[at + 3] = 255 * Math.min(1, sums[at + 3] / top);
  }
  pen.putImageData(image, 0, 0);
  return canvas;
}

// Returns the size of a dot in pixels and its opacity, so that `count` dots on a square of `side` pixels stay apart.
export function dot(count, side) {
  const size = Math.min(5, Math.max(1.2, (0.32 * side) / Math.sqrt(count)));
  return { size, alpha: size > 2 ? 0.85 : 0.6 };
}
