// What if: the user sets any columns, and the page shows the conditional densities of all other columns.

/** @import { Column, Columns, Run, WhatIf } from "../types" */
import { kept } from "../answers.js";
import { quantilesOf, split } from "../axis.js";
import { inWords, picture } from "../chart.js";
import { Control } from "../controls.js";
import { card, copy, failed, make, number, percent, quiet, remember, remembered, sentence } from "../page.js";
import { table, whole } from "../page.js";
import { isRough, Question } from "../question.js";

const MOST = 48; // columns that are drawn

/** @param {HTMLElement} page @param {Run} run */
export async function draw(page, run) {
  /** @type {Columns} */
  const about = await kept("api/columns");
  const { columns, given } = about;
  const [view, usual] = [copy("what-if"), split(columns, about.arrays.masses)];
  const controls = [...given, ...columns].map((column) => new Control(column, () => changed()));
  const cards = columns.slice(0, MOST).map((column, i) => columnCard(column, usual[i], controls[given.length + i]));
  cards.forEach((each, i) => each.draw(usual[i], null, quantilesOf(about, i)));

  const question = new Question(controls, {
    answer(found, isLast) {
      view.wrong.replaceChildren();
      view.grid.classList.remove("busy");
      const [masses, errors] = [split(columns, found.arrays.masses), split(columns, found.arrays.errors)];
      cards.forEach((each, i) => each.draw(masses[i], errors[i], quantilesOf(found, i)));
      view.status.replaceChildren(gauge(found), summary(found, controls, given.length), isLast ? "" : " · refining …");
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
  const contexts = about.ofData ? "in all contexts of the data" : "in the usual context";
  view.behind.textContent = given.length ? contexts : "without conditions";
  view.conditions.append(...controls.map(({ element }) => element));
  view.grid.append(...cards.map(({ element }) => element));
  page.append(view.content);
  question.read(remembered());
  changed();
  return { leave: () => question.leave() };
}

/** @param {Column} column @param {number[]} data @param {Control} control */
function columnCard(column, data, control) {
  const drawn = picture(column, { height: 90 });
  const { element, about, words } = card(column.name, drawn.element);
  const draw = (model, errors, quantiles) => {
    const condition = control.condition();
    element.classList.toggle("given-card", Boolean(condition));
    about.textContent = condition && control.inWords();
    drawn.draw({ data, model, errors, quantiles });
    const missing = model[model.length - 1];
    const gap = column.hasGaps && missing > 0.0005 ? ` · missing ${percent(missing)}` : "";
    const isFixed = column.isList || condition?.is !== undefined;
    words.textContent = isFixed ? "" : `${inWords(column, quantiles)}${gap}`;
  };
  return { element, draw };
}

/** @param {WhatIf} answer */
function gauge(answer) {
  const size = answer.effectiveSize;
  const text = size === null ? "exact" : `effective size ${whole(Math.round(size))}`;
  const title = "The number of equally weighted rows with the same precision";
  return make("span", { class: `gauge ${isRough(answer) ? "rough" : ""}`, title }, make("i"), make("strong", { text }));
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
