// Overview: every column, data against model; the quality of the fit; the training curve.

/** @import { Column, Columns, Data, Run, Score, Training } from "../types" */
import { kept } from "../answers.js";
import { quantilesOf, split } from "../axis.js";
import { curves, picture } from "../chart.js";
import { card, copy, failed, loading, make, number, percent, quiet, sentence, shownValue } from "../page.js";
import { table, whole } from "../page.js";
import { drawNotes } from "../state.js";

const AT_ONCE = 24; // columns that are drawn before the user asks for more
const KINDS = { loss: "loss", validation_loss: "model", validation_loss_averaged: "averaged" };

/** @param {HTMLElement} page @param {Run} run */
export async function draw(page, run) {
  const view = copy("overview");
  page.append(view.content);
  if (run.kind !== "images") await drawColumns(view).catch((error) => view.columns.append(failed(error)));
  else view.columns.remove();
  part(view.score, drawScore, run);
  part(view.training, drawTraining, run);
}

/** Draws a part of the view. An error in one part leaves the others.
 * @param {HTMLElement} section @param {(run: Run) => Promise<(Node | string)[]>} work @param {Run} run */
async function part(section, work, run) {
  const wait = loading();
  section.append(wait);
  wait.replaceWith(...(await work(run).catch((error) => [failed(error)])));
}

/** @param {Record<string, any>} view */
async function drawColumns({ columns: section, legend, grid, more }) {
  /** @type {Columns} */
  const about = await kept("api/columns");
  const { columns, given } = about;
  if (given.length) legend.append(`The model has ${about.ofData ? "the contexts of the data" : "one usual context"}.`);
  const model = split(columns, about.arrays.masses);
  const cards = columns.map((column, i) => columnCard(column, model[i], quantilesOf(about, i)));
  const add = () => {
    grid.append(...cards.slice(grid.children.length, grid.children.length + AT_ONCE).map(({ element }) => element));
    const left = cards.length - grid.children.length;
    more.textContent = `Show ${Math.min(left, AT_ONCE)} more of ${left} columns`;
    if (!left) more.remove();
  };
  more.addEventListener("click", add);
  add();
  const context = "context: the model is conditional on this column";
  const others = [...given.map(({ name }) => ({ name, about: context })), ...about.others];
  if (others.length) section.append(quiet(`Not drawn: ${others.map((c) => `${c.name} (${c.about})`).join("; ")}`));
  drawData(legend, columns, cards).catch((error) => section.append(failed(error)));
}

/** @param {HTMLElement} legend @param {Column[]} columns @param {ReturnType<typeof columnCard>[]} cards */
async function drawData(legend, columns, cards) {
  /** @type {Data} */
  const found = await kept("api/data");
  drawNotes(found.notes);
  if (!found.rows) return;
  legend.prepend(key("data", `data, ${whole(found.rows)} rows`));
  const data = split(columns, found.arrays.masses);
  cards.forEach((each, i) => each.draw(data[i], quantilesOf(found, i)[1]));
}

const key = (kind, text) => make("span", {}, make("span", { class: `key ${kind}` }), text);

/** @param {Column} column @param {number[]} model @param {number[]} quantiles */
function columnCard(column, model, quantiles) {
  const drawn = picture(column);
  const { element, words } = card(column.name, drawn.element, column.kind, column.about);
  const draw = (data, ofData) => {
    drawn.draw({ data, model, quantiles });
    words.textContent = describe(column, model, quantiles[1], ofData);
  };
  draw(null, NaN);
  return { element, draw };
}

/** @param {Column} column @param {number[]} model @param {number} median @param {number} ofData */
function describe(column, model, median, ofData) {
  if (column.isList) return column.words > column.bars.length ? `${whole(column.words)} different values` : "";
  const data = Number.isNaN(ofData) ? "" : `, data ${shownValue(column, ofData)}`;
  const gap = column.hasGaps ? ` · missing ${percent(model[model.length - 1])}` : "";
  return `median ${Number.isNaN(median) ? "–" : shownValue(column, median)}${data}${gap}`;
}

/** @param {Run} run */
async function drawScore({ kind, name, source }) {
  /** @type {Score} */
  const { verdict, parts, warnings, judgement } = await kept("api/score");
  /** @type {Node[]} */
  const found = [make("p", { text: verdict ?? "There are no held-out rows to score." })];
  const [test, train] = ["test", "train"].map((wanted) => parts.find((part) => part[0] === wanted));
  const facts = { "test rows, by the model": test?.[2], "test rows, by independent columns": test?.[3] };
  Object.assign(facts, { "gain per row": test?.[4], "training rows, by the model": test && train?.[2] });
  const cells = Object.entries(facts).flatMap(([text, mean]) => (mean ? fact(text, mean[0], mean[1]) : []));
  found.push(make("dl", { class: "facts" }, ...cells));
  found.push(...warnings.map((text) => make("p", { class: "note", text: sentence(text) })));
  if (judgement) {
    const lines = table("the judgement", ["", "samples", "real rows"], judgement.lines, "wide");
    found.push(make("p", { text: judgement.verdict }), lines.element);
  } else if (kind === "columns" || kind === "flow") {
    const command = `cubicflow judge ${name} ${source}`;
    const text = `Can a classifier tell samples from real rows? Run: ${command}. Its verdict is then shown here.`;
    found.push(quiet(text));
  }
  return found;
}

function fact(text, mean, error) {
  const value = make("dd", {}, number(mean), make("span", { class: "small", text: ` ± ${number(error, 2)} nats` }));
  return make("div", {}, make("dt", { text }), value);
}

async function drawTraining() {
  /** @type {Training} */
  const { curves: names, arrays } = await kept("api/training");
  if (!names.length) return [make("p", { class: "quiet", text: "This run has no training metrics." })];
  const lines = names.map(([name, label]) => ({
    x: arrays[`${name}_steps`],
    y: arrays[name],
    kind: KINDS[name],
    label,
  }));
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
