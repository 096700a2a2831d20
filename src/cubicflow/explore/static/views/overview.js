// Overview: every column, data against model; the quality of the fit; the training curve.

import { drawNotes, kept, rowOf } from "../answers.js";
import { ColumnCard, curves } from "../chart.js";
import { copy, failed, loading, make, number, percent, quiet, sentence, shownValue, table, whole } from "../page.js";

const KINDS = { loss: "loss", validation_loss: "model", validation_loss_averaged: "averaged" };

export async function draw(/** @type {Run} */ run) {
  const view = copy("overview");
  if (run.kind !== "images") await drawColumns(view).catch((error) => view.columns.append(failed(error)));
  else view.columns.remove();
  part(view.score, drawScore(run));
  part(view.training, drawTraining());
  return view;
}

/** Draws a part of the view. An error in one part leaves the others.
 * @param {HTMLElement} section @param {Promise<(Node | string)[]>} content */
async function part(section, content) {
  const wait = loading();
  section.append(wait);
  wait.replaceWith(...(await content.catch((error) => [failed(error)])));
}

async function drawColumns(/** @type {Record<string, any>} */ { columns: section, legend, grid }) {
  const about = await kept("columns");
  const { columns, given } = about;
  if (given.length) legend.append(`The model has ${about.ofData ? "the contexts of the data" : "one usual context"}.`);
  const cards = columns.map((column) => new ColumnCard(column, 104));
  const drawAll = (/** @type {Masses | null} */ data) =>
    cards.forEach((card, i) => {
      const [model, quantiles] = [rowOf(about.arrays.masses, i), rowOf(about.arrays.quantiles, i)];
      const words = describe(card.column, model, quantiles[1], data ? rowOf(data.quantiles, i)[1] : NaN);
      card.draw({ data: data && rowOf(data.masses, i), model, quantiles }, words);
    });
  drawAll(null);
  grid.append(...cards.map(({ element }) => element));
  const context = "context: the model is conditional on this column";
  const others = [...given.map(({ name }) => ({ name, about: context })), ...about.others];
  if (others.length) section.append(quiet(`Not drawn: ${others.map((c) => `${c.name} (${c.about})`).join("; ")}`));
  const drawData = (/** @type {Data} */ { rows, notes, arrays }) => {
    drawNotes(notes);
    if (!rows) return;
    legend.prepend(key("data", `data, ${whole(rows)} rows`));
    drawAll(arrays);
  };
  const wrong = (error) => section.append(failed(error));
  kept("data").then(drawData).catch(wrong);
}

const key = (kind, text) => make("span", {}, make("span", { class: `key ${kind}` }), text);

/** @param {Column} column @param {ArrayLike<number>} model @param {number} median @param {number} ofData */
function describe(column, model, median, ofData) {
  if (column.isList) return column.words > column.bars.length ? `${whole(column.words)} different values` : "";
  const data = Number.isNaN(ofData) ? "" : `, data ${shownValue(column, ofData)}`;
  const gap = column.hasGaps ? ` · missing ${percent(model[column.bins])}` : "";
  return `median ${shownValue(column, median)}${data}${gap}`;
}

async function drawScore(/** @type {Run} */ { kind, name, source }) {
  const { verdict, facts, warnings, judgement } = await kept("score");
  /** @type {Node[]} */
  const found = [make("p", { text: verdict ?? "There are no held-out rows to score." })];
  found.push(make("dl", { class: "facts" }, ...facts.map(fact)));
  found.push(...warnings.map((text) => make("p", { class: "note", text: sentence(text) })));
  if (judgement) {
    const lines = table("the judgement", ["", "samples", "real rows"], judgement.lines, "wide");
    found.push(make("p", { text: judgement.verdict }), lines.element);
  } else if (kind === "columns" || kind === "flow") {
    const command = `Run: cubicflow judge ${name} ${source}`;
    found.push(quiet(`Can a classifier tell samples from real rows? ${command}. Its verdict is then shown here.`));
  }
  return found;
}

function fact(/** @type {[string, number, number]} */ [text, mean, error]) {
  const value = make("dd", {}, number(mean), make("span", { class: "small", text: ` ± ${number(error, 2)} nats` }));
  return make("div", {}, make("dt", { text }), value);
}

async function drawTraining() {
  const { curves: names, arrays } = await kept("training");
  if (!names.length) return [make("p", { class: "quiet", text: "This run has no training metrics." })];
  const curve = ([name, label]) => ({ x: arrays[`${name}_steps`], y: arrays[name], kind: KINDS[name], label });
  const lines = names.map(curve);
  const losses = lines.flatMap((line) => [...line.y]).sort((a, b) => a - b);
  const [low, high] = [losses[0], losses[Math.floor(0.94 * (losses.length - 1))]]; // the first losses are left out
  const margin = 0.06 * (high - low) || 1;
  const steps = lines.flatMap((line) => [line.x[0], line.x[line.x.length - 1]]);
  const x = [Math.min(...steps), Math.max(...steps, steps[0] + 1)];
  const ends = lines.map((line) => `${line.label} ends at ${number(line.y[line.y.length - 1])}`);
  const about = { x, y: [low - margin, high + 2 * margin], label: `nats per row, by step: ${ends.join(", ")}` };
  const keys = lines.map((line) => key(line.kind, line.label));
  return [make("div", { class: "legend" }, ...keys, "nats per row, by step"), curves(lines, about)];
}
