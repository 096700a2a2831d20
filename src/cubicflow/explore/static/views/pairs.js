// Pairs: two columns at a time, data and model side by side. The rows inside a brush are marked in the pictures of all columns.

import { cloud, dot, ink } from "../clouds.js";
import { get } from "../framed.js";
import { colour, empty, loading, make, remember } from "../page.js";
import { drawNotes, kept } from "../state.js";

const SIZE = 420;
const MANY = 20000; // more than MANY points are drawn as a density

export async function draw(page, run) {
  if (run.kind === "images") {
    page.append(empty("Images have no pairs of columns", "This view shows two columns of a table. The view Images shows samples."));
    return;
  }
  const wait = loading("Drawing rows");
  page.append(wait);
  const about = await kept("api/columns");
  if (about.columns.length < 2) {
    wait.replaceWith(empty("There is only one column", "A pair needs two columns. The view Overview shows this column."));
    return;
  }
  const points = await kept("api/points");
  wait.remove();
  drawNotes(points.notes);
  const columns = about.columns, count = columns.length;
  const sets = { data: points.arrays.data, model: points.arrays.model };
  const requested = new URLSearchParams(location.hash.split("?")[1] || "");
  const known = (key, other) => { const i = columns.findIndex((c) => c.name === requested.get(key)); return i < 0 ? other : i; };
  const chosen = { x: known("x", 0), y: known("y", count > 6 ? 6 : 1) };
  let brush = null;

  const select = (axis, label) => {
    const menu = make("select", { "aria-label": label }, ...columns.map((c, i) => make("option", { value: i, text: c.name })));
    menu.value = chosen[axis];
    menu.addEventListener("change", () => { chosen[axis] = Number(menu.value); brush = null; remember("pairs", { x: columns[chosen.x].name, y: columns[chosen.y].name }); redraw(); });
    return make("label", {}, label, menu);
  };
  const status = make("p", { class: "quiet small", role: "status" });
  const clear = make("button", { class: "plain", text: "clear the selection", onclick: () => { brush = null; marks(); } });
  page.append(make("section", {},
    make("h2", { text: "Two columns at a time" }),
    make("p", { class: "lead", text: "Drag over a picture to select rows. The selected rows are marked below in every column. Arrow keys move the selection." }),
    make("div", { class: "row" }, select("x", "across"), select("y", "up"), clear)));
  const left = panel(sets.data ? "data" : "samples", sets.data ? "data" : "model"), right = panel("model", "density");
  page.append(make("div", { class: "squares" }, left.element, right.element), status);
  const small = make("div", { class: "grid" });
  page.append(make("section", { class: "below" }, make("h2", { text: "The selected rows in every column" }), small));
  const minis = columns.map((column, i) => mini(column, i));
  small.append(...minis.slice(0, 24).map((each) => each.element));

  function panel(title, kind) {
    const canvas = make("canvas", { class: "plot", tabindex: "0", role: "img" });
    const label = make("span", { class: "quiet small", text: kind === "density" ? "density and samples" : "rows" });
    const element = make("div", { class: "card" }, make("header", {}, make("h3", { text: title }), label), canvas);
    let start = null;
    const at = (event) => { const box = canvas.getBoundingClientRect(); return frame(canvas).back((event.clientX - box.left), (event.clientY - box.top)); };
    canvas.addEventListener("pointerdown", (event) => { start = at(event); canvas.setPointerCapture(event.pointerId); });
    canvas.addEventListener("pointermove", (event) => { if (start) { brush = box(start, at(event)); marks(); } });
    canvas.addEventListener("pointerup", () => { start = null; });
    canvas.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
      if (!step) return;
      event.preventDefault();
      const [x, y] = ranges();
      const dx = (x[1] - x[0]) / 20, dy = (y[1] - y[0]) / 20;
      brush = brush || { x: [x[0] + 8 * dx, x[0] + 12 * dx], y: [y[0] + 8 * dy, y[0] + 12 * dy] };
      brush = { x: brush.x.map((v) => v + step[0] * dx), y: brush.y.map((v) => v + step[1] * dy) };
      marks();
    });
    return { canvas, element, kind, label };
  }

  function range(column) {
    return column.isList ? [-0.5, column.bars.length - 0.5] : [column.edges[0], column.edges[column.edges.length - 1]];
  }
  function ranges() { return [range(columns[chosen.x]), range(columns[chosen.y])]; }
  function box(a, b) { return { x: [Math.min(a[0], b[0]), Math.max(a[0], b[0])], y: [Math.min(a[1], b[1]), Math.max(a[1], b[1])] }; }

  function frame(canvas) {
    const width = canvas.clientWidth || SIZE, height = Math.min(width, SIZE);
    const [x, y] = ranges(), pad = { left: columns[chosen.y].isDate || columns[chosen.y].isList ? 68 : 46, right: 10, top: 22, bottom: 34 };
    const w = width - pad.left - pad.right, h = height - pad.top - pad.bottom;
    return {
      width, height, pad, w, h,
      to: (u, v) => [pad.left + ((u - x[0]) / (x[1] - x[0])) * w, pad.top + h - ((v - y[0]) / (y[1] - y[0])) * h],
      back: (px, py) => [x[0] + ((px - pad.left) / w) * (x[1] - x[0]), y[0] + ((pad.top + h - py) / h) * (y[1] - y[0])],
    };
  }

  // Returns where row i is drawn: words and whole numbers are spread around their place, so that rows do not hide others.
  function drawnAt(set, i) {
    const spread = (axis, wave, by) => {
      const column = columns[chosen[axis]], jitter = column.isList ? 0.7 : column.isWhole ? column.step * 0.6 : 0;
      return set[i * count + chosen[axis]] + (jitter ? ((Math.abs(Math.sin(i * wave) * by) % 1) - 0.5) * jitter : 0);
    };
    return [spread("x", 12.9898, 43758.5453), spread("y", 78.233, 12543.123)];
  }

  function inside(set, i) {
    if (!brush) return false;
    const [u, v] = drawnAt(set, i);
    return u >= brush.x[0] && u <= brush.x[1] && v >= brush.y[0] && v <= brush.y[1];
  }

  function paint(target) {
    const { canvas, kind } = target, f = frame(canvas), scale = window.devicePixelRatio || 1;
    canvas.width = f.width * scale; canvas.height = f.height * scale; canvas.style.height = `${f.height}px`;
    const pen = canvas.getContext("2d");
    pen.scale(scale, scale);
    pen.clearRect(0, 0, f.width, f.height);
    pen.save();
    pen.beginPath(); pen.rect(f.pad.left, f.pad.top, f.w, f.h); pen.clip();
    if (kind === "density" && target.image) {
      pen.imageSmoothingEnabled = false;
      pen.drawImage(target.image, f.pad.left, f.pad.top, f.w, f.h);
    }
    const set = kind === "data" ? sets.data : sets.model;
    const isDense = kind !== "data" && target.image && target.isExact;
    if (set && !isDense && !brush && set.shape[0] > MANY) {
      const [x, y] = ranges();
      pen.drawImage(cloud(set.shape[0], (i) => [(set[i * count + chosen.x] - x[0]) / (x[1] - x[0]), (set[i * count + chosen.y] - y[0]) / (y[1] - y[0])], ink(kind === "data" ? "--data-ink" : "--model")), f.pad.left, f.pad.top, f.w, f.h);
    } else if (set && !isDense) dots(pen, set, f, kind === "data" ? colour("--data-ink") : colour("--model"), set.shape[0] < 1000 ? 0.7 : kind === "density" ? 0.28 : 0.4);
    if (brush) {
      const [a, b] = [f.to(brush.x[0], brush.y[1]), f.to(brush.x[1], brush.y[0])];
      pen.strokeStyle = colour("--ink"); pen.lineWidth = 1.2; pen.strokeRect(a[0], a[1], b[0] - a[0], b[1] - a[1]);
    }
    pen.restore();
    ticks(pen, f);
    canvas.setAttribute("aria-label", `${columns[chosen.y].name} against ${columns[chosen.x].name}, ${kind}`);
  }

  function dots(pen, set, f, stroke, alpha) {
    const total = set.shape[0];
    const size = Math.min(3.5, dot(total, f.h).size);
    pen.fillStyle = stroke;
    for (const marked of [false, true]) {
      pen.globalAlpha = brush ? (marked ? 0.9 : 0.1) : alpha;
      for (let i = 0; i < total; i += 1) {
        if (inside(set, i) !== marked) continue;
        const [px, py] = f.to(...drawnAt(set, i));
        pen.fillRect(px - size / 2, py - size / 2, size, size);
      }
      if (!brush) break;
    }
    pen.globalAlpha = 1;
  }

  function ticks(pen, f) {
    pen.font = "12px system-ui, sans-serif"; pen.fillStyle = colour("--quiet"); pen.strokeStyle = colour("--line");
    pen.strokeRect(f.pad.left + 0.5, f.pad.top + 0.5, f.w, f.h);
    const places = (column, room) => {
      if (column.isList) { const every = Math.ceil(column.bars.length / room); return column.bars.map((label, i) => [i, label]).filter((_, i) => i % every === 0); }
      if (column.isDate) return dateTicks(...range(column), room - 1);
      const [low, high] = range(column), rough = (high - low) / room, power = 10 ** Math.floor(Math.log10(rough));
      const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough);
      const found = [];
      for (let v = Math.ceil(low / step) * step; v <= high + 1e-9; v += step) found.push([v, Math.abs(v) >= 10000 ? new Intl.NumberFormat("en", { notation: "compact" }).format(v) : String(Number(v.toPrecision(6)))]);
      return found;
    };
    const cut = (text, pixels) => {
      let found = String(text);
      for (let length = found.length - 1; length > 0 && pen.measureText(found).width > pixels; length -= 1) found = `${String(text).slice(0, length)}…`;
      return found;
    };
    pen.textAlign = "center"; pen.textBaseline = "top";
    const across = columns[chosen.x], up = columns[chosen.y];
    const labels = places(across, across.isList ? 8 : 5), apart = labels.length > 1 ? f.to(labels[1][0], 0)[0] - f.to(labels[0][0], 0)[0] : f.w;
    for (const [v, label] of labels) pen.fillText(cut(label, apart - 6), f.to(v, 0)[0], f.pad.top + f.h + 5);
    pen.textAlign = "right"; pen.textBaseline = "middle";
    for (const [v, label] of places(up, up.isList ? 12 : 6)) pen.fillText(cut(label, f.pad.left - 6), f.pad.left - 5, f.to(0, v)[1]);
    pen.textAlign = "center"; pen.textBaseline = "bottom"; pen.fillStyle = colour("--ink");
    pen.fillText(cut(across.name, f.w), f.pad.left + f.w / 2, f.height);
    pen.textAlign = "left"; pen.textBaseline = "top";
    pen.fillText(cut(up.name, f.width), 0, 0);
  }

  function mini(column, i) {
    const track = make("canvas", { class: "plot", role: "img", "aria-label": `${column.name} of the selected rows` });
    return { column, i, canvas: track, element: make("div", { class: "card" }, make("header", {}, make("h3", { text: column.name })), track) };
  }

  function paintMini({ column, i, canvas }) {
    const [low, high] = range(column), bins = column.isList ? column.bars.length : 32, set = sets.data || sets.model;
    const all = new Float64Array(bins), marked = new Float64Array(bins);
    for (let row = 0; row < set.shape[0]; row += 1) {
      const bin = Math.floor(((set[row * count + i] - low) / (high - low)) * bins);
      if (!(bin >= 0 && bin < bins)) continue;
      all[bin] += 1;
      if (inside(set, row)) marked[bin] += 1;
    }
    const scale = window.devicePixelRatio || 1, width = canvas.clientWidth || 220, height = 54;
    canvas.width = width * scale; canvas.height = height * scale; canvas.style.height = `${height}px`;
    const pen = canvas.getContext("2d");
    pen.scale(scale, scale);
    const top = Math.max(...all, 1), topMarked = Math.max(...marked, 1), step = width / bins;
    pen.fillStyle = colour("--data");
    all.forEach((n, j) => pen.fillRect(j * step, height - (n / top) * height, Math.max(step - 1, 1), (n / top) * height));
    pen.fillStyle = sets.data ? colour("--ink") : colour("--model");
    pen.globalAlpha = 0.8;
    marked.forEach((n, j) => pen.fillRect(j * step, height - (n / topMarked) * height * 0.9, Math.max(step - 1, 1), brush ? (n / topMarked) * height * 0.9 : 0));
  }

  function marks() {
    paint(left); paint(right);
    minis.slice(0, 24).forEach(paintMini);
    const set = sets.data || sets.model;
    let rows = 0;
    for (let i = 0; brush && i < set.shape[0]; i += 1) rows += inside(set, i) ? 1 : 0;
    status.textContent = brush ? `${rows.toLocaleString("en")} of ${set.shape[0].toLocaleString("en")} rows of ${sets.data ? "the data" : "the model"} are selected` : "";
  }

  async function redraw() {
    right.image = null;
    marks();
    const pair = `${chosen.x},${chosen.y}`;
    const found = await get(`api/density?x=${chosen.x}&y=${chosen.y}`);
    if (pair !== `${chosen.x},${chosen.y}`) return;
    right.image = shaded(found.arrays.density);
    right.isExact = found.isExact;
    right.label.textContent = found.isExact ? "exact density" : "density and samples";
    marks();
  }

  await redraw();
  const watcher = new ResizeObserver(() => { if (left.canvas.isConnected) marks(); });
  watcher.observe(page);
  return { leave: () => watcher.disconnect() };
}

// Returns at most `room` + 1 ticks of dates, in seconds since 1970: starts of days, months or years, with their labels.
export function dateTicks(low, high, room) {
  const days = (high - low) / 86400 / room, found = [];
  const text = (seconds, length) => new Date(seconds * 1000).toISOString().slice(0, length);
  if (days < 28) {
    const step = 86400 * ([1, 2, 7, 14, 28].find((d) => d >= days) || 28);
    for (let v = Math.ceil(low / step) * step; v <= high; v += step) found.push([v, text(v, 10)]);
    return found;
  }
  const months = [1, 2, 3, 6, 12, 24, 60, 120, 240, 600].find((m) => m * 30 >= days) || 1200, start = new Date(low * 1000);
  let year = start.getUTCFullYear(), month = 0;
  if (months > 12) year -= year % (months / 12);
  for (; Date.UTC(year, month) / 1000 <= high; month += months) {
    const v = Date.UTC(year, month) / 1000;
    if (v >= low) found.push([v, text(v, months >= 12 ? 4 : 7)]);
  }
  return found;
}

// Draws a grid of densities as a picture. The first row of the grid is at the bottom.
export function shaded(density) {
  const [tall, wide] = density.shape;
  const canvas = make("canvas");
  canvas.width = wide; canvas.height = tall;
  const pen = canvas.getContext("2d"), image = pen.createImageData(wide, tall);
  const sorted = Array.from(density).filter((v) => v > 0).sort((a, b) => a - b);
  const top = sorted[Math.floor(0.995 * (sorted.length - 1))] || 1;
  const [r, g, b] = ink("--model");
  for (let i = 0; i < tall; i += 1) {
    for (let j = 0; j < wide; j += 1) {
      const at = 4 * ((tall - 1 - i) * wide + j);
      image.data[at] = r; image.data[at + 1] = g; image.data[at + 2] = b;
      image.data[at + 3] = 235 * Math.min(1, density[i * wide + j] / top) ** 0.6;
    }
  }
  pen.putImageData(image, 0, 0);
  return canvas;
}
