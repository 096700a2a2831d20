// Layers: points on their way from data to noise, and the learned splines of each layer.

/** @import { Layers } from "../types" */
import { kept } from "../answers.js";
import { curves } from "../chart.js";
import { Flowing } from "../flowing.js";
import { card, copy, empty, fill } from "../page.js";
import { Scatter } from "../scatter.js";

const SECONDS = 1.6; // from one layer to the next
const NAMED = 20; // column names in the text
const AT_ONCE = 24; // splines that are drawn before the user asks for more

/** @param {HTMLElement} page */
export async function draw(page) {
  /** @type {Layers} */
  const found = await kept("api/layers");
  if (found.kind === "context") {
    const text = "Its layers depend on the context of each row, so they are not drawn here.";
    return void page.append(empty("This flow has a context", text));
  }
  if (found.kind === "columns")
    return void page.append(splines(found, "Distribution functions", aboutFunctions(found)));
  const { content, leave } = player(found);
  const text = "For every layer, the feature with the most curved spline: input across, output up, for twelve rows.";
  page.append(content, splines(found, "Learned splines", text));
  return { leave };
}

/** @param {Layers} found */
function aboutFunctions({ order, context }) {
  const more = order.length > NAMED ? `, and ${order.length - NAMED} more` : "";
  const words = [
    `This model predicts the columns one after the other: ${order.slice(0, NAMED).join(", ")}${more}.`,
    "For a column of numbers, it predicts the distribution function, given the columns before, as a cubic spline on the",
    "column's own scale. Each line is one row. A straight diagonal means that the earlier columns do not matter for this",
    "column.",
  ];
  if (context) words.push(`All rows have one usual context: ${context}.`);
  return words.join(" ");
}

/** @param {Layers} found @param {string} heading @param {string} text */
function splines(found, heading, text) {
  const { content, title, lead, grid, more } = copy("splines");
  [title.textContent, lead.textContent] = [heading, text];
  const add = () => {
    const first = grid.children.length;
    grid.append(...found.layers.slice(first, first + AT_ONCE).map((_, i) => spline(found, first + i)));
    if (grid.children.length === found.layers.length) more.remove();
  };
  more.addEventListener("click", add);
  add();
  if (!found.layers.length) grid.append("No column has a spline: all columns are lists of values.");
  return content;
}

/** @param {Layers} found @param {number} i */
function spline({ kind, layers, names, arrays }, i) {
  const { x, y } = arrays;
  const [, rows, points] = y.shape;
  const input = kind === "columns" ? x : x.subarray(i * points, (i + 1) * points);
  const output = y.subarray(i * rows * points, (i + 1) * rows * points);
  const line = (_, r) => ({ x: input, y: output.subarray(r * points, (r + 1) * points), kind: "model thin" });
  const ends = [input[0], input[points - 1]];
  const bounds = [Math.min(...output), Math.max(...output)];
  const { name, feature } = layers[i];
  const text = feature === null ? name : `${name}: ${names[feature]}`;
  const lines = [{ x: ends, y: ends, kind: "diagonal" }, ...Array.from({ length: rows }, line)];
  return card(text, curves(lines, { x: ends, y: bounds, label: `splines of ${text}`, kind: "square" })).element;
}

/** Returns the picture of points between data and noise, with its buttons. @param {Layers} found */
function player(found) {
  const flowing = new Flowing(found);
  const last = flowing.steps - 1;
  const { content, stage, play, back, next, choice, lines, status, slider, ...menus } = copy("player");
  const scatter = new Scatter("points on their way from data to noise", () => flowing.paint(scatter, lines.checked));
  let timer = 0;
  const go = (at) => {
    slider.value = String(at);
    flowing.at = Number(slider.value);
    status.textContent = flowing.inWords();
    scatter.repaint();
  };
  const stop = () => {
    cancelAnimationFrame(timer);
    timer = 0;
    play.textContent = "Play";
  };
  const start = () => {
    const [from, began] = [flowing.at >= last ? 0 : flowing.at, performance.now()];
    const frame = (now) => {
      go(from + Math.max(0, now - began) / 1000 / SECONDS);
      if (flowing.at < last) timer = requestAnimationFrame(frame);
      else stop();
    };
    play.textContent = "Pause";
    timer = requestAnimationFrame(frame);
  };
  const moveTo = (at) => {
    stop();
    go(at);
  };
  play.addEventListener("click", () => (timer ? stop() : start()));
  back.addEventListener("click", () => moveTo(Math.ceil(flowing.at) - 1));
  next.addEventListener("click", () => moveTo(Math.floor(flowing.at) + 1));
  slider.addEventListener("input", () => moveTo(slider.value));
  lines.addEventListener("change", () => scatter.repaint());
  ["x", "y"].forEach((name, axis) => {
    const menu = menus[name];
    fill(menu, Object.entries(found.names), flowing.chosen[axis]);
    menu.hidden = flowing.features < 3;
    menu.addEventListener("change", () => {
      flowing.choose(axis, Number(menu.value));
      scatter.repaint();
    });
  });
  choice.hidden = !found.arrays.lines;
  slider.max = last;
  scatter.canvas.classList.add("square");
  stage.append(scatter.canvas);
  go(0);
  return { content, leave: stop };
}
