// What if: the user sets any columns, and the page shows the conditional densities of all other columns.

import { kept, rowOf } from "../answers.js";
import { ColumnCard, inWords } from "../chart.js";
import { Control } from "../controls.js";
import { copy, failed, make, number, percent, quiet, remember, remembered, sentence, table, whole } from "../page.js";
import { isRough, Question } from "../question.js";

const MOST = 48; // columns that are drawn

export async function draw(/** @type {Run} */ run) {
  const { columns, given, ofData, arrays } = await kept("columns");
  const view = copy("what-if");
  const controls = [...given, ...columns].map((column) => new Control(column, () => changed()));
  const cards = columns.slice(0, MOST).map((column) => new ColumnCard(column, 90));
  const drawAll = (/** @type {Masses & {errors?: Shaped}} */ { masses, errors, quantiles }) =>
    cards.forEach((card, i) => {
      const [data, model] = [arrays.masses, masses].map((all) => rowOf(all, i));
      const picture = { data, model, errors: errors && rowOf(errors, i), quantiles: rowOf(quantiles, i) };
      drawCard(card, picture, controls[given.length + i]);
    });
  const question = new Question(controls, {
    answer(found, isLast) {
      view.wrong.replaceChildren();
      view.grid.classList.remove("busy");
      drawAll(found.arrays);
      view.status.replaceChildren(
        gauge(found.effectiveSize),
        summary(found, controls, given.length),
        isLast ? "" : " · refining …",
      );
    },
    rows(found) {
      const rows = table("sampled rows", found.columns, found.cells);
      view.sample.replaceChildren(rows.element, quiet(found.notes.map(sentence).join(" ")));
    },
    failed(error, part) {
      view.grid.classList.remove("busy");
      view[part].replaceChildren(failed(error));
    },
  });
  const point = () => (view.link.href = question.file(view.sizes.value));
  const changed = () => {
    remember("what-if", question.address());
    view.grid.classList.add("busy");
    question.changed();
    point();
  };
  view.link.download = `${run.name}-rows.csv`;
  view.sizes.addEventListener("change", point);
  view.clear.addEventListener("click", () => {
    for (const control of controls) control.set("any");
    changed();
  });
  const contexts = ofData ? "in all contexts of the data" : "in the usual context";
  view.behind.textContent = given.length ? contexts : "without conditions";
  view.conditions.append(...controls.map(({ element }) => element));
  view.grid.append(...cards.map(({ element }) => element));
  drawAll(arrays);
  question.read(remembered());
  changed();
  return { content: view.content, leave: () => question.leaving.abort() };
}

/** @param {ColumnCard} card @param {import("../chart.js").Picture} picture @param {Control} control */
function drawCard(card, picture, control) {
  const { column, element, about } = card;
  const condition = control.condition();
  element.classList.toggle("given-card", Boolean(condition));
  about.textContent = condition && control.inWords();
  const missing = picture.model?.[column.bins] ?? 0;
  const gap = column.hasGaps && missing > 0.0005 ? ` · missing ${percent(missing)}` : "";
  const isFixed = column.isList || condition?.is !== undefined;
  card.draw(picture, isFixed ? "" : `${inWords(column, picture.quantiles)}${gap}`);
}

function gauge(/** @type {number | null} */ size) {
  const text = size === null ? "exact" : `effective size ${whole(Math.round(size))}`;
  const title = "The number of equally weighted rows with the same precision";
  return make("span", { class: `gauge ${isRough(size) ? "rough" : ""}`, title }, make("i"), make("strong", { text }));
}

/** Returns the contexts and the probability of the conditions in words.
 * @param {WhatIf} answer @param {Control[]} controls @param {number} contexts */
function summary({ isDensity, probability }, controls, contexts) {
  const given = controls.slice(0, contexts).map((control) => `${control.column.name} ${control.inWords()}`);
  const place = contexts ? ` · given ${given.join(", ")}` : "";
  if (!controls.slice(contexts).some((control) => control.condition())) return place || " · no conditions yet";
  const value = isDensity || probability < 1e-3 ? number(probability, 3) : percent(probability);
  return `${place} · ${isDensity ? "density" : "probability"} of the conditions: ${value}`;
}
