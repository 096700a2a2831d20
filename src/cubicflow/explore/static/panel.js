// One of the two pictures of Pairs: points, the density of the model, and the brush.

/** @import { Selection } from "./selection.js" */
import { ticksOf } from "./axis.js";
import { labels } from "./chart.js";
import { copy, make } from "./page.js";
import { ink, pixels, Scatter } from "./scatter.js";

const KEYS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };

export class Panel {
  /** @param {Selection} selection @param {string} title @param {Shaped} rows @param {string} colour */
  constructor(selection, title, rows, colour) {
    this.selection = selection;
    this.title = title;
    this.rows = rows;
    this.colour = colour;
    this.parts = copy("panel");
    this.parts.title.textContent = title;
    this.density = /** @type {Density | null} */ (null);
    this.scatter = new Scatter(title, () => this.paint(), { tabindex: 0 });
    this.brush = make("div", { class: "brush" });
  }

  /** Shows the chosen columns, without their density. */
  choose() {
    const { selection, scatter, brush, parts } = this;
    const [x, y] = [selection.columns[selection.x], selection.columns[selection.y]];
    this.density = null;
    [parts.up.textContent, parts.across.textContent] = [y.name, x.name];
    const ticks = [...labels("across", ticksOf(x, 5), x.ends), ...labels("up", ticksOf(y, 6), y.ends)];
    parts.frame.classList.toggle("with-words", y.isList || y.isDate);
    parts.frame.replaceChildren(scatter.canvas, brush, ...ticks);
    scatter.canvas.setAttribute("aria-label", `${y.name} against ${x.name}, ${this.title}`);
  }

  shade(/** @type {Density} */ found) {
    this.density = found;
    this.parts.about.textContent = found.isExact ? "exact density" : "density and samples";
    this.scatter.repaint();
  }

  /** Draws the brush, and the points inside and outside it. */
  mark() {
    const { x, y } = this.selection.brush ?? { x: [0, 0], y: [0, 0] };
    this.brush.style.inset = [1 - y[1], 1 - x[1], y[0], x[0]].map((share) => `${100 * share}%`).join(" ");
    this.brush.hidden = !this.selection.brush;
    this.scatter.repaint();
  }

  paint() {
    const { selection, scatter, rows, density } = this;
    const [colour, count] = [ink(this.colour), rows.shape[0]];
    if (density) scatter.image(shaded(density.arrays.density, colour));
    if (density?.isExact) return;
    const place = selection.placesOf(rows);
    const plain = { alpha: density ? 0.28 : count < 1000 ? 0.7 : 0.4, size: 3.5 };
    if (!selection.brush) return scatter.points(count, place, colour, plain);
    const holds = selection.holds(rows);
    scatter.points(count, place, colour, { ...plain, alpha: 0.1, only: (i) => !holds(i) });
    scatter.points(count, place, colour, { ...plain, alpha: 0.9, only: holds });
  }

  /** Listens to the pointer and to arrow keys. @param {() => void} changed */
  listen(changed) {
    const { canvas } = this.scatter;
    let start = [0, 0];
    const at = (event) => [event.offsetX / canvas.clientWidth, 1 - event.offsetY / canvas.clientHeight];
    canvas.addEventListener("pointerdown", (event) => {
      start = at(event);
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!canvas.hasPointerCapture(event.pointerId)) return;
      this.selection.drag(start, at(event));
      changed();
    });
    canvas.addEventListener("keydown", (event) => {
      if (!KEYS[event.key]) return;
      event.preventDefault();
      this.selection.move(KEYS[event.key]);
      changed();
    });
  }
}

/** Draws a grid of densities as a picture. The first row of the grid is at the bottom.
 * @param {Shaped} density @param {number[]} colour */
function shaded(density, colour) {
  const [tall, wide] = density.shape;
  const positive = density.filter((value) => value > 0).sort();
  const top = positive[Math.floor(0.995 * (positive.length - 1))] || 1;
  return pixels(wide, tall, (i) => {
    const value = density[(tall - 1 - Math.floor(i / wide)) * wide + (i % wide)];
    return [...colour, 235 * Math.min(1, value / top) ** 0.6];
  });
}
