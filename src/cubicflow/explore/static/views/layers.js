// Layers: points on their way from data to noise, and the learned splines of each layer.

import { curves } from "../charts.js";
import { cloud, dot, inksByPlace } from "../clouds.js";
import { colour, empty, loading, make } from "../page.js";
import { kept } from "../state.js";

const SECONDS = 1.6; // from one layer to the next
const MANY = 20000; // more than MANY points are drawn as a density
const NAMED = 20, AT_ONCE = 24; // column names in the text, and splines that are drawn before the user asks for more
const TALLEST = 620, AROUND = 300; // tallest picture, and the height of what is above it, in pixels

export async function draw(page, run) {
  const wait = loading("Sending points through the layers");
  page.append(wait);
  const found = await kept("api/layers");
  wait.remove();
  if (found.kind === "images") {
    page.append(empty("Layers of images", "A flow of images turns pixels into noise at several scales, which two axes cannot show. The view Images shows a path from one image to another through noise space."));
    return;
  }
  if (found.kind === "context") {
    page.append(empty("This flow has a context", "Its layers depend on the context of each row, so they are not drawn here."));
    return;
  }
  let leave = null;
  if (found.kind === "columns") {
    page.append(make("section", {}, make("h2", { text: "Distribution functions" }), make("p", { class: "lead", text: `This model predicts the columns one after the other: ${found.order.slice(0, NAMED).join(", ")}${found.order.length > NAMED ? `, and ${found.order.length - NAMED} more` : ""}. For a column of numbers, it predicts the distribution function, given the columns before, as a cubic spline on the column's own scale. Each line is one row. A straight diagonal means that the earlier columns do not matter for this column.${found.context ? ` All rows have one usual context: ${found.context}.` : ""}` })));
  } else leave = flowing(page, found);
  const section = make("section", {});
  page.append(section);
  if (found.kind !== "columns") section.append(make("h2", { text: "Learned splines" }), make("p", { class: "lead", text: "For every layer, the feature with the most curved spline: input across, output up, for twelve rows." }));
  const grid = make("div", { class: "grid" });
  section.append(grid);
  if (!found.layers.length) grid.append(make("p", { class: "quiet", text: "No column has a spline: all columns are lists of values." }));
  const { x, y } = found.arrays;
  const add = () => found.layers.slice(grid.children.length, grid.children.length + AT_ONCE).forEach((layer) => {
    const i = grid.children.length;
    const [, rows, points] = y.shape;
    const across = found.kind === "columns" ? x : x.subarray(i * points, (i + 1) * points);
    const lines = [{ x: [across[0], across[points - 1]], y: [across[0], across[points - 1]], stroke: colour("--data"), width: 1, dash: [4, 4] }];
    for (let r = 0; r < rows; r += 1) lines.push({ x: across, y: y.subarray((i * rows + r) * points, (i * rows + r + 1) * points), stroke: colour("--model"), width: 0.9 });
    const name = layer.feature === null ? layer.name : `${layer.name}: ${found.names[layer.feature]}`;
    grid.append(make("article", { class: "card" }, make("header", {}, make("h3", { text: name })), curves(lines, { square: true })));
  });
  const more = make("button", { text: "Show more", onclick: () => { add(); if (grid.children.length >= found.layers.length) more.remove(); } });
  add();
  if (found.layers.length > AT_ONCE) section.append(make("p", {}, more));
  return { leave };
}

function flowing(page, found) {
  const { path, lines } = found.arrays;
  const [steps, points, features] = path.shape;
  const canvas = make("canvas", { class: "plot", role: "img", "aria-label": "points on their way from data to noise" });
  const slider = make("input", { type: "range", min: 0, max: steps - 1, step: 0.01, value: 0, "aria-label": "place between data and noise" });
  const status = make("span", { class: "quiet", role: "status" });
  const play = make("button", { text: "Play" });
  const grid = make("input", { type: "checkbox", checked: true, onchange: () => paint() });
  const chosen = { x: 0, y: Math.min(1, features - 1) };
  const select = (axis) => {
    const menu = make("select", { "aria-label": `feature ${axis}` }, ...found.names.map((name, i) => make("option", { value: i, text: name })));
    menu.value = chosen[axis];
    menu.addEventListener("change", () => { chosen[axis] = Number(menu.value); measure(); paint(); });
    return menu;
  };
  const step = (by) => () => { stop(); slider.value = Math.max(0, Math.min(steps - 1, Math.round(Number(slider.value)) + by)); paint(); };
  page.append(make("section", {}, make("h2", { text: "From data to noise" }), make("p", { class: "lead", text: `Each layer moves every point by an invertible map. Every point keeps the colour of its place in the data${lines ? ", and the lines are straight in the data" : ""}. Step through the layers, or play.` }),
    make("div", { class: "wide" }, make("div", { class: "row" }, play, make("button", { text: "‹ back", onclick: step(-1) }), make("button", { text: "next ›", onclick: step(1) }), ...(features > 2 ? [select("x"), select("y")] : []), lines ? make("label", {}, grid, "lines") : null, status), slider, canvas)));
  let bounds = null, inks = null; // of the chosen features: the axes after every layer, and the colours of points
  function measure() {
    bounds = [];
    for (let s = 0; s < steps; s += 1) {
      bounds.push([chosen.x, chosen.y].map((f) => {
        const values = Float32Array.from({ length: points }, (_, i) => path[(s * points + i) * features + f]).sort();
        const low = values[Math.floor(0.002 * points)], high = values[Math.min(points - 1, Math.ceil(0.998 * points))];
        if (low >= -0.001 && high <= 1.001 && values[0] >= 0 && values[points - 1] <= 1) return [0, 1];
        const margin = 0.05 * (high - low) || 1;
        return [low - margin, high + margin];
      }));
    }
    const [u, v] = [chosen.x, chosen.y].map((f) => shares(Float32Array.from({ length: points }, (_, i) => path[i * features + f])));
    inks = inksByPlace(points, (i) => [u[i], v[i]]);
  }
  function paint() {
    const at = Number(slider.value), first = Math.min(Math.floor(at), steps - 1), next = Math.min(first + 1, steps - 1), part = at - first;
    const ease = part * part * (3 - 2 * part);
    const scale = window.devicePixelRatio || 1, width = canvas.clientWidth || 500, height = Math.min(width, TALLEST, Math.max(260, window.innerHeight - AROUND));
    if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) { canvas.width = Math.round(width * scale); canvas.height = Math.round(height * scale); canvas.style.height = `${height}px`; }
    const pen = canvas.getContext("2d");
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.fillStyle = colour("--card");
    pen.fillRect(0, 0, width, height);
    const mix = (a, b) => a + (b - a) * ease;
    const [bx, by] = [0, 1].map((k) => [mix(bounds[first][k][0], bounds[next][k][0]), mix(bounds[first][k][1], bounds[next][k][1])]);
    const side = Math.min(width, height) - 16, left = (width - side) / 2, top = 8;
    const place = (i) => {
      const a = (first * points + i) * features, b = (next * points + i) * features;
      const u = (mix(path[a + chosen.x], path[b + chosen.x]) - bx[0]) / (bx[1] - bx[0]);
      return [u, (mix(path[a + chosen.y], path[b + chosen.y]) - by[0]) / (by[1] - by[0])];
    };
    if (points > MANY) pen.drawImage(cloud(points, place, inks), left, top, side, side);
    else {
      const { size, alpha } = dot(points, side);
      pen.globalAlpha = alpha;
      for (let i = 0; i < points; i += 1) {
        const [u, v] = place(i);
        if (!(u >= 0 && u <= 1 && v >= 0 && v <= 1)) continue;
        pen.fillStyle = `rgb(${inks[3 * i]},${inks[3 * i + 1]},${inks[3 * i + 2]})`;
        pen.fillRect(left + u * side - size / 2, top + (1 - v) * side - size / 2, size, size);
      }
    }
    if (lines && grid.checked) drawLines(pen, lines, first, next, mix, (x, y) => [left + ((x - bx[0]) / (bx[1] - bx[0])) * side, top + side - ((y - by[0]) / (by[1] - by[0])) * side]);
    pen.globalAlpha = 1;
    pen.strokeStyle = colour("--line");
    pen.strokeRect(left + 0.5, top + 0.5, side - 1, side - 1);
    const near = Math.round(at);
    status.textContent = Math.abs(at - near) < 0.02 ? (near === 0 ? "the data" : `after layer ${near} of ${steps - 1}: ${found.steps[near]}`) : `between layers ${first} and ${next} of ${steps - 1}`;
  }
  let timer = 0, began = 0, from = 0;
  function stop() { cancelAnimationFrame(timer); timer = 0; play.textContent = "Play"; }
  function frame(now) {
    if (!canvas.isConnected) { stop(); return; }
    if (!began) began = now;
    const at = from + (now - began) / 1000 / SECONDS;
    slider.value = Math.min(at, steps - 1);
    paint();
    if (at < steps - 1) timer = requestAnimationFrame(frame); else stop();
  }
  play.addEventListener("click", () => {
    if (timer) { stop(); return; }
    from = Number(slider.value) >= steps - 1 ? 0 : Number(slider.value);
    began = 0;
    play.textContent = "Pause";
    timer = requestAnimationFrame(frame);
  });
  slider.addEventListener("input", () => { if (timer) stop(); paint(); });
  measure();
  const watcher = new ResizeObserver(() => { if (canvas.isConnected) paint(); });
  watcher.observe(page);
  paint();
  return () => { stop(); watcher.disconnect(); };
}

// Returns the share of values below each value, so that the colours of crowded places differ as well.
function shares(values) {
  const sorted = values.slice().sort();
  return values.map((value) => {
    let low = 0, high = sorted.length;
    while (low < high) { const middle = (low + high) >> 1; if (sorted[middle] < value) low = middle + 1; else high = middle; }
    return low / sorted.length;
  });
}

// Draws the lines that are straight in the data, at their place between two layers.
function drawLines(pen, lines, first, next, mix, place) {
  const [, count, length] = lines.shape;
  pen.globalAlpha = 0.4;
  pen.strokeStyle = colour("--ink");
  pen.lineWidth = 1;
  pen.beginPath();
  for (let line = 0; line < count; line += 1) {
    for (let i = 0; i < length; i += 1) {
      const a = 2 * ((first * count + line) * length + i), b = 2 * ((next * count + line) * length + i);
      const at = place(mix(lines[a], lines[b]), mix(lines[a + 1], lines[b + 1]));
      if (i) pen.lineTo(...at); else pen.moveTo(...at);
    }
  }
  pen.stroke();
}
