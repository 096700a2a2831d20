// Rows: drop a file or paste rows. Each row gets its score, its percentile, and the columns that make it unlikely.

import { post } from "../framed.js";
import { empty, failed, loading, make, number } from "../page.js";
import { kept } from "../state.js";

export async function draw(page, run) {
  if (run.kind === "images") {
    page.append(empty("Images have no rows", "This view scores the rows of a table or of an array of numbers."));
    return;
  }
  const about = await kept("api/columns");
  const result = make("section", { "aria-live": "polite" });
  const file = make("input", { type: "file", id: "file", accept: ".csv,.tsv,.jsonl,.parquet,.feather,.arrow,.npy", "aria-label": "a file of rows" });
  const drop = make("div", { class: "drop" }, make("p", { text: "Drop a CSV file here, or choose one" }), file);
  const text = make("textarea", { rows: 3, cols: 60, "aria-label": "rows as text", placeholder: about.names.join(",") });
  const paste = make("button", { text: "Score the pasted rows" });
  page.append(make("section", {},
    make("h2", { text: "Which rows are odd?" }),
    make("p", { class: "lead", text: "Every row gets its log likelihood, its percentile among training rows, and the columns that make it unlikely. Files stay on this machine." }),
    drop,
    make("p", { class: "quiet small", text: "Or paste rows, with or without a first line of column names:" }),
    text, make("div", { class: "row" }, paste)), result);
  const send = async (body, name, pasted) => {
    result.replaceChildren(loading("Scoring"));
    try { show(result, await post(`api/score-rows?name=${encodeURIComponent(name)}${pasted ? "&pasted=1" : ""}`, body)); }
    catch (error) { result.replaceChildren(failed(error)); }
    result.dataset.done = String(Number(result.dataset.done || 0) + 1);
  };
  file.addEventListener("change", () => { if (file.files[0]) send(file.files[0], file.files[0].name, false); });
  paste.addEventListener("click", () => { if (text.value.trim()) send(new Blob([text.value]), "pasted.csv", true); });
  for (const name of ["dragenter", "dragover"]) drop.addEventListener(name, (event) => { event.preventDefault(); drop.classList.add("over"); });
  drop.addEventListener("dragleave", () => drop.classList.remove("over"));
  drop.addEventListener("drop", (event) => {
    event.preventDefault();
    drop.classList.remove("over");
    const dropped = event.dataTransfer.files[0];
    if (dropped) send(dropped, dropped.name, false);
  });
  return { stays: true };
}

function show(section, found) {
  const { scores, percentiles, conditionals, ranks } = found.arrays;
  const count = found.explained.length;
  const why = make("div", { class: "card" });
  const body = make("tbody");
  const lines = found.shown.map((row, place) => { // the least likely row is the first, and incomplete rows are the last
    const line = make("tr", { tabindex: "0", "data-row": row },
      make("td", { class: "number", text: String(row + 1) }),
      make("td", { class: "number score", text: Number.isNaN(scores[row]) ? "incomplete" : scores[row].toFixed(3), title: String(scores[row]) }),
      make("td", { class: "number", text: Number.isNaN(percentiles[row]) ? "–" : percentiles[row].toFixed(percentiles[row] < 10 ? 1 : 0) }),
      ...found.cells[place].map((cell) => make("td", { text: cell, title: cell })));
    const choose = () => { body.querySelectorAll(".chosen").forEach((other) => other.classList.remove("chosen")); line.classList.add("chosen"); explain(row, place); };
    line.addEventListener("click", choose);
    line.addEventListener("focus", choose);
    return line;
  });
  body.append(...lines);
  const heads = ["row", "log likelihood", "percentile", ...found.columns];
  const place = { before: "given the columns before it", rest: "given all other columns" }[found.way];

  function explain(row, at) {
    why.replaceChildren(make("header", {}, make("h3", { text: `Row ${row + 1}` }), make("span", { class: "quiet small", text: "log p of each column" })));
    if (!conditionals || Number.isNaN(conditionals[at * count])) {
      why.append(make("p", { class: "quiet small", text: "There are no scores of single columns for this row: the row is incomplete, it is not among the least likely rows, or the model scores only whole rows." }));
      return;
    }
    const parts = found.explained.map((name, i) => ({ name, value: conditionals[at * count + i], rank: ranks ? ranks[at * count + i] : null }));
    parts.sort((a, b) => (a.rank === null ? a.value - b.value : a.rank - b.rank || a.value - b.value));
    const low = Math.min(...parts.map((part) => part.value).filter(Number.isFinite), -1);
    const list = make("div", { class: "why" });
    for (const part of parts) {
      const bar = make("span", { class: part.rank !== null && part.rank < 2.5 ? "of-model odd" : "of-model" });
      bar.style.width = `${Math.max(2, Math.min(100, (100 * part.value) / low))}%`;
      list.append(make("span", { text: part.name, title: part.name }), make("span", { class: "track" }, bar),
        make("span", { class: "quiet", text: part.rank === null ? number(part.value, 3) : `${number(part.value, 3)} · ${part.rank < 10 ? part.rank.toFixed(1) : part.rank.toFixed(0)} %` }));
    }
    why.append(list, make("p", { class: "quiet small", text: ranks ? `Each value is exact, ${place}; their sum is the score. The last number is the percentile of the value in that column among ${found.reference}.` : `Each value is by quadrature, ${place}.` }));
  }

  const lowest = percentiles.filter((p) => p < 1).length;
  const ignored = found.ignored.length ? ` Columns that the fitted table did not have are ignored: ${found.ignored.join(", ")}.` : "";
  const some = found.shown.length < found.rows ? ` The ${found.shown.length} least likely rows are shown.` : "";
  section.replaceChildren(
    make("h2", { text: `${found.rows.toLocaleString("en")} ${found.rows === 1 ? "row" : "rows"}` }),
    make("p", { class: "lead", text: `The least likely rows come first. ${lowest.toLocaleString("en")} ${lowest === 1 ? "is" : "are"} below the first percentile of ${found.reference}.${some}${ignored}` }),
    make("div", { class: "side" }, make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "scored rows" }, make("table", {}, make("thead", {}, make("tr", {}, ...heads.map((name, i) => make("th", { scope: "col", class: i < 3 ? "number" : undefined, text: name })))), body)), why));
  if (lines.length) lines[0].click();
}
