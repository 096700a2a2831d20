// Layers: points on their way from data to noise, and the learned splines of each layer.

import { kept, rowOf } from "../answers.js";
import { curves } from "../chart.js";
import { Flowing } from "../flowing.js";
import { card, copy, empty, fill } from "../page.js";
import { Scatter } from "../scatter.js";

const SECONDS = 1.6; // from one layer to the next
const NAMED = 20; // column names in the text

export async function draw() {
  const found = await kept("layers");
  const instead = "Its layers depend on the context of each row, so they are not drawn here.";
  if (found.kind === "context") return { content: empty("This flow has a context", instead) };
  const view = copy(found.kind === "columns" ? "functions" : "splines");
  view.grid.append(...splines(found));
  if (found.kind === "columns") {
    const { order, context } = found;
    const more = order.length > NAMED ? `, and ${order.length - NAMED} more` : "";
    view.order.textContent = order.slice(0, NAMED).join(", ") + more;
    view.context.textContent = context && `All rows have one usual context: ${context}.`;
    return view;
  }
  const { content, leave } = player(found);
  view.content.prepend(content);
  return { content: view.content, leave };
}

/** @param {Layers} found @returns {(Node | string)[]} */
function splines({ kind, layers, names, arrays }) {
  if (!layers.length) return ["No column has a spline: all columns are lists of values."];
  return layers.map(({ name, feature }, i) => {
    const x = kind === "columns" ? arrays.x : rowOf(arrays.x, i);
    const [y, ends] = [rowOf(arrays.y, i), [x[0], x[x.length - 1]]];
    const line = (_, r) => ({ x, y: y.subarray(r * x.length, (r + 1) * x.length), kind: "model thin" });
    const lines = [{ x: ends, y: ends, kind: "diagonal" }, ...Array.from({ length: y.length / x.length }, line)];
    const label = feature === null ? name : `${name}: ${names[feature]}`;
    const bounds = [Math.min(...y), Math.max(...y)];
    return card(label, "", curves(lines, { x: ends, y: bounds, label: `splines of ${label}`, kind: "square" }));
  });
}

/** Returns the picture of points between data and noise, with its buttons. @param {Layers} found */
function player(found) {
  const flowing = new Flowing(found);
  const { last, chosen } = flowing;
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
  [menus.x, menus.y].forEach((menu, axis) => {
    fill(menu, Object.entries(found.names), chosen[axis]);
    menu.hidden = flowing.features < 3;
    menu.addEventListener("change", () => {
      chosen[axis] = Number(menu.value);
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
