// Overview: every column, data against model; the quality of the fit; the training curve.

import { curves, picture, quantilesOf, split } from "../charts.js";
import { colour, failed, loading, make, number, percent, sentence, shownValue } from "../page.js";
import { drawNotes, kept } from "../state.js";

const AT_ONCE = 24;

export async function draw(page, run) {
  const score = make("section"), training = make("section"), columns = make("section");
  page.append(score, columns, training);
  const later = [];
  if (run.kind !== "images") await drawColumns(columns, run, later).catch((error) => columns.append(failed(error)));
  else columns.append(make("p", { class: "lead", text: "This run is a flow of images. The view Images shows samples." }));
  later.push(drawScore(score, run), drawTraining(training));
  Promise.all(later).then(() => { page.dataset.whole = "yes"; });
}

async function drawColumns(section, run, later) {
  section.append(make("h2", { text: "Columns" }));
  const legend = make("div", { class: "legend" }, make("span", {}, make("span", { class: "key model" }), "model"));
  const grid = make("div", { class: "grid" });
  const wait = loading("Drawing the model");
  section.append(legend, wait, grid);
  const about = await kept("api/columns").finally(() => wait.remove());
  if (about.given.length) legend.append(make("span", { text: about.ofData ? "The model has the contexts of the data." : "The model has one usual context." }));
  const masses = split(about.columns, about.arrays.masses);
  const cards = [];
  const more = make("button", { text: "" });
  function add() {
    const first = cards.length;
    about.columns.slice(first, first + AT_ONCE).forEach((column, j) => {
      const card = columnCard(column, masses[first + j], quantilesOf(about, first + j)[1]);
      cards.push(card);
      grid.append(card.element);
      card.draw(null);
      if (data) card.draw(data.masses[first + j], data.medians[first + j]);
    });
    const left = about.columns.length - cards.length;
    more.textContent = `Show ${Math.min(left, AT_ONCE)} more of ${left} columns`;
    if (!left) more.remove();
  }
  let data = null;
  more.addEventListener("click", add);
  section.append(make("p", {}, more));
  add();
  const others = [...about.given.map((c) => ({ ...c, about: "context: the model is conditional on this column" })), ...about.others];
  if (others.length) {
    section.append(make("p", { class: "quiet small", text: `Not drawn: ${others.map((c) => `${c.name} (${c.about})`).join("; ")}` }));
  }
  later.push(kept("api/data").then((found) => {
    drawNotes(found.notes);
    if (!found.rows) return;
    legend.prepend(make("span", {}, make("span", { class: "key data" }), `data, ${found.rows.toLocaleString("en")} rows`));
    data = { masses: split(about.columns, found.arrays.masses), medians: about.columns.map((_, i) => quantilesOf(found, i)[1]) };
    cards.forEach((card, i) => card.draw(data.masses[i], data.medians[i]));
  }, (error) => section.append(failed(error))));
}

function columnCard(column, model, median) {
  const drawn = picture(column);
  const middle = make("span", { class: "quiet small" });
  const element = make("article", { class: "card" }, make("header", {}, make("h3", { text: column.name }), make("span", { class: "quiet small", title: column.about, text: column.kind })), drawn.element, make("div", { class: "quiet small" }, middle));
  return {
    element,
    draw(data, medianOfData = NaN) {
      drawn.draw({ data, model, middle: median });
      if (column.isList) { middle.textContent = column.words > column.bars.length ? `${column.words.toLocaleString("en")} different values` : ""; return; }
      const gap = column.hasGaps ? ` · missing ${percent(model[model.length - 1])}` : "";
      middle.textContent = `median ${Number.isNaN(median) ? "–" : shownValue(column, median)}${Number.isNaN(medianOfData) ? "" : `, data ${shownValue(column, medianOfData)}`}${gap}`;
    },
  };
}

async function drawScore(section, run) {
  section.append(make("h2", { text: "Quality of the fit" }));
  const wait = loading("Scoring rows");
  section.append(wait);
  try {
    const found = await kept("api/score");
    wait.remove();
    if (found.verdict) section.append(make("p", { text: found.verdict }));
    const test = found.parts.find((part) => part[0] === "test"), train = found.parts.find((part) => part[0] === "train");
    if (test) {
      const fact = (name, value) => make("div", {}, make("dt", { text: name }), make("dd", {}, number(value[0]), make("span", { class: "small", text: ` ± ${number(value[1], 2)} nats` })));
      const facts = [fact("test rows, by the model", test[2])];
      if (test[3]) facts.push(fact("test rows, by independent columns", test[3]), fact("gain per row", test[4]));
      if (train) facts.push(fact("training rows, by the model", train[2]));
      section.append(make("dl", { class: "facts" }, ...facts));
    }
    for (const text of found.warnings) section.append(make("p", { class: "note", text: sentence(text) }));
    if (found.judgement) {
      section.append(make("p", { text: found.judgement.verdict }));
      const rows = found.judgement.lines;
      section.append(make("div", { class: "scroll wide" }, make("table", {}, make("thead", {}, make("tr", {}, ...["", "samples", "real rows"].map((t) => make("th", { text: t })))), make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map((cell) => make("td", { text: cell }))))))));
    } else if (run.kind === "columns" || run.kind === "flow") {
      section.append(make("p", { class: "quiet small", text: `Can a classifier tell samples from real rows? Run: cubicflow judge ${run.name} ${run.source}. Its verdict is then shown here.` }));
    }
    if (!found.verdict) section.append(make("p", { class: "quiet", text: "There are no held-out rows to score." }));
  } catch (error) {
    wait.replaceWith(failed(error));
  }
}

async function drawTraining(section) {
  section.append(make("h2", { text: "Training" }));
  try {
    const found = await kept("api/training");
    if (!found.curves.length) { section.append(make("p", { class: "quiet", text: "This run has no training metrics." })); return; }
    const strokes = { loss: colour("--data-ink"), validation_loss: colour("--model"), validation_loss_averaged: colour("--ink") };
    const lines = found.curves.map(([key, label]) => ({ x: found.arrays[`${key}_steps`], y: found.arrays[key], stroke: strokes[key], width: key === "loss" ? 1 : 1.8, label }));
    const all = lines.flatMap((line) => Array.from(line.y)).sort((a, b) => a - b);
    const low = all[0], high = all[Math.floor(0.94 * (all.length - 1))], margin = 0.06 * (high - low) || 1;
    const key = (line) => { const mark = make("span", { class: "key model" }); mark.style.background = line.stroke; return make("span", {}, mark, line.label); };
    section.append(make("div", { class: "legend" }, ...lines.map(key)));
    section.append(curves(lines, { height: 220, xLabel: "step", yLabel: "nats per row", yRange: [low - margin, high + 2 * margin] }));
  } catch (error) {
    section.append(failed(error));
  }
}
