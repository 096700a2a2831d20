// What if: the user sets any columns, and the page shows the conditional densities of all other columns.

import { picture, quantilesOf, split } from "../charts.js";
import { Control } from "../controls.js";
import { post } from "../framed.js";
import { empty, failed, latest, loading, make, number, percent, remember, sentence, shownValue, table } from "../page.js";
import { kept } from "../state.js";

const ENOUGH = 500;

export async function draw(page, run) {
  if (run.kind === "images") {
    page.append(empty("Images have no columns to set", "The view Images shows samples at a temperature, and a path from one sample to another."));
    return;
  }
  const wait = loading("Opening the model");
  page.append(wait);
  const about = await kept("api/columns");
  wait.remove();
  const { columns } = about, usual = split(columns, about.arrays.masses);
  const conditions = make("div", { class: "conditions", role: "group", "aria-label": "Conditions" });
  const status = make("p", { class: "quiet", role: "status", "aria-live": "polite", id: "asked" });
  const wrong = make("div");
  const grid = make("div", { class: "grid" });
  const rows = make("section");
  const clear = make("button", { class: "plain", text: "clear all", onclick: () => { controls.forEach((c) => c.set("any")); changed(); } });
  page.append(make("div", { class: "asking" },
    make("div", {}, make("h2", { text: "What if" }), make("p", { class: "quiet small" }, "Set any columns. ", clear), conditions),
    make("div", {}, status, wrong, make("div", { class: "legend" }, make("span", {}, make("span", { class: "key data" }), !about.given.length ? "without conditions" : about.ofData ? "in all contexts of the data" : "in the usual context"), make("span", {}, make("span", { class: "key model" }), "given your conditions, ± two standard errors")), grid, rows)));
  const context = () => controls.slice(0, about.given.length).map((control) => `${control.column.name} ${control.inWords()}`).join(", ");
  const controls = [...about.given, ...columns].map((column) => new Control(column, () => changed()));
  conditions.append(...controls.map((control) => control.element));
  const cards = columns.map((column, i) => {
    const drawn = picture(column, { height: 118 }), words = make("span", { class: "quiet small" });
    const given = make("span", { class: "small quiet" });
    const element = make("article", { class: "card", "data-column": column.name }, make("header", {}, make("h3", { text: column.name }), given), drawn.element, words);
    return { column, drawn, words, given, element, usual: usual[i], control: controls.find((c) => c.column === column) };
  });
  grid.append(...cards.slice(0, 48).map((card) => card.element));
  cards.slice(0, 48).forEach((card, i) => card.drawn.draw({ data: card.usual, model: card.usual, middle: quantilesOf(about, i)[1] }));

  function conditionsNow() {
    const found = {};
    for (const control of controls) { const condition = control.condition(); if (condition) found[control.column.name] = condition; }
    return found;
  }

  function show(answer, seconds, rough) {
    const masses = split(columns, answer.arrays.masses), errors = split(columns, answer.arrays.errors);
    cards.slice(0, 48).forEach((card, i) => {
      const condition = card.control.condition();
      card.element.classList.toggle("given-card", Boolean(condition));
      card.given.textContent = condition ? card.control.inWords() : "";
      const levels = quantilesOf(answer, i);
      card.drawn.draw({ data: card.usual, model: masses[i], errors: errors[i], middle: levels[1] });
      card.words.textContent = condition && condition.is !== undefined ? "" : quantiles(card.column, masses[i], levels);
      card.element.dataset.masses = JSON.stringify(masses[i].map((m) => Number(m.toFixed(7))));
    });
    const size = answer.effectiveSize === null ? "exact" : `effective size ${Math.round(answer.effectiveSize).toLocaleString("en")}`;
    const isRough = answer.effectiveSize !== null && answer.effectiveSize < ENOUGH;
    const gauge = make("span", { class: isRough ? "gauge rough" : "gauge", title: "The number of equally weighted rows with the same precision" }, make("i"), make("strong", { text: size }));
    const isAsked = cards.some((card) => card.control.condition());
    const chance = isAsked ? ` · ${answer.isDensity ? "density" : "probability"} of the conditions: ${answer.isDensity ? number(answer.probability, 3) : answer.probability < 1e-3 ? number(answer.probability, 2) : percent(answer.probability)}` : about.given.length ? "" : " · no conditions yet";
    const place = about.given.length ? ` · given ${context()}` : "";
    const more = rough ? " · refining …" : "";
    status.replaceChildren(gauge, `${place}${chance}${more}`);
    status.title = `${Math.round(1000 * seconds)} ms`;
    status.dataset.size = answer.effectiveSize === null ? "exact" : String(answer.effectiveSize);
  }

  let number_ = 0, timer = 0, sampling = 0;
  const ask = latest(async (question, mine) => {
    const began = performance.now();
    try {
      const answer = await post("api/what-if", { conditions: question });
      wrong.replaceChildren();
      const isRough = answer.effectiveSize !== null && answer.effectiveSize < ENOUGH;
      show(answer, (performance.now() - began) / 1000, isRough && mine === number_);
      status.dataset.answered = String(mine);
      if (isRough && mine === number_) { clearTimeout(timer); timer = setTimeout(() => refine(question, mine), 350); }
    } catch (error) {
      if (mine === number_) { wrong.replaceChildren(failed(error)); status.replaceChildren("no answer"); status.dataset.answered = String(mine); }
    }
    grid.classList.remove("busy");
  });

  async function refine(question, mine) {
    if (mine !== number_) return;
    const began = performance.now();
    try {
      const answer = await post("api/what-if", { conditions: question, refine: true });
      if (mine === number_) { show(answer, (performance.now() - began) / 1000, false); status.dataset.refined = String(mine); }
    } catch (error) {
      if (mine === number_) wrong.replaceChildren(failed(error));
    }
  }

  const link = make("a", { class: "button", text: "Download as CSV" });
  const sizes = make("select", { "aria-label": "number of rows" }, ...[100, 1000, 10000, 100000].map((n) => make("option", { value: n, text: `${n.toLocaleString("en")} rows` })));
  sizes.addEventListener("change", () => point());
  const sampled = make("div");
  rows.append(make("h2", { text: "Rows that meet the conditions" }), sampled, make("div", { class: "row" }, sizes, link));
  function point() {
    link.download = `${run.name}-rows.csv`;
    link.href = `api/sample.csv?${new URLSearchParams({ n: sizes.value, seed: 0, conditions: JSON.stringify(conditionsNow()) })}`;
  }

  const drawRows = latest(async (question, mine) => {
    try {
      const found = await post("api/sample", { conditions: question, n: 12, seed: 0 });
      if (mine !== sampling) return;
      sampled.replaceChildren(table(found.columns, found.cells, { label: "sampled rows" }), make("p", { class: "quiet small", text: found.notes.map(sentence).join(" ") }));
      rows.dataset.sampled = String(mine);
    } catch (error) {
      if (mine === sampling) sampled.replaceChildren(failed(error));
    }
  });
  let rowsTimer = 0;
  function sample() {
    point();
    sampling += 1;
    const mine = sampling;
    clearTimeout(rowsTimer);
    rowsTimer = setTimeout(() => drawRows(conditionsNow(), mine), 500);
  }

  function changed() {
    remember("what-if", controls.filter((control) => control.condition()).map((control) => [control.column.name, control.text()]));
    number_ += 1;
    clearTimeout(timer);
    grid.classList.add("busy");
    ask(conditionsNow(), number_);
    sample();
  }

  for (const [name, text] of new URLSearchParams(location.hash.split("?")[1] || "")) {
    const control = controls.find((c) => c.column.name === name);
    if (control) control.read(text);
  }
  changed();
  return { leave: () => { number_ += 1; sampling += 1; clearTimeout(timer); clearTimeout(rowsTimer); } };
}

function quantiles(column, masses, [low, middle, high]) {
  if (column.isList) return "";
  if (Number.isNaN(middle)) return "missing";
  const gap = column.hasGaps && masses[masses.length - 1] > 0.0005 ? ` · missing ${percent(masses[masses.length - 1])}` : "";
  return `median ${shownValue(column, middle)}, 90 % from ${shownValue(column, low)} to ${shownValue(column, high)}${gap}`;
}
