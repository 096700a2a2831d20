// Rows: drop a file or paste rows. Each row gets its score, its percentile, and the columns that make it unlikely.

import { kept, post, rowOf } from "../answers.js";
import { card, copy, failed, loading, make, number, quiet, table, whole } from "../page.js";

const ODD = 2.5; // percentile of a value that is marked
const NO_PARTS =
  "There are no scores of single columns for this row: the row is incomplete or impossible, it is not among the least " +
  "likely rows, or the model scores only whole rows.";

export async function draw() {
  const { names } = await kept("columns");
  const { content, drop, file, text, paste, result } = copy("rows");
  const send = async (body, parameters) => {
    result.replaceChildren(loading("Scoring"));
    const found = post(`score-rows?${new URLSearchParams(parameters)}`, body);
    result.replaceChildren(...(await found.then(shown, (error) => [failed(error)])));
  };
  const sendFile = ([first]) => first && send(first, { name: first.name });
  text.placeholder = names.join(",");
  file.addEventListener("change", () => sendFile(file.files));
  paste.addEventListener("click", () => text.value.trim() && send(new Blob([text.value]), { pasted: "1" }));
  for (const name of ["dragenter", "dragover", "dragleave", "drop"]) {
    drop.addEventListener(name, (event) => {
      event.preventDefault();
      drop.classList.toggle("over", name === "dragenter" || name === "dragover");
      if (name === "drop") sendFile(event.dataTransfer.files);
    });
  }
  return { content, stays: true };
}

function shown(/** @type {ScoredRows} */ found) {
  const { arrays, cells, columns, rows } = found;
  const { content, title, summary, side } = copy("scored");
  const lines = found.shown.map((row, place) => {
    const [score, percentile] = [arrays.scores[row], arrays.percentiles[row]];
    const isWhole = !Number.isNaN(score);
    const words = isWhole ? [score.toFixed(3), shortened(percentile)] : ["incomplete", "–"];
    return [String(row + 1), ...words, ...cells[place]];
  });
  const scored = table("scored rows", ["row", "log likelihood", "percentile", ...columns], lines);
  scored.rows.forEach((line, place) => {
    const row = found.shown[place];
    line.tabIndex = 0;
    line.dataset.row = String(row);
    line.cells[1].title = String(arrays.scores[row]); // all digits
    const choose = () => {
      for (const other of scored.rows) other.classList.toggle("chosen", other === line);
      side.replaceChildren(scored.element, explanation(found, place));
    };
    for (const event of ["click", "focus"]) line.addEventListener(event, choose);
  });
  title.textContent = `${whole(rows)} ${rows === 1 ? "row" : "rows"}`;
  summary.textContent = inWords(found);
  side.append(scored.element);
  scored.rows[0]?.click();
  return [content];
}

function inWords(/** @type {ScoredRows} */ { rows, shown: some, reference, ignored, arrays }) {
  const lowest = arrays.percentiles.filter((percentile) => percentile < 1).length;
  const words = ["The least likely rows come first."];
  if (arrays.scores.some(Number.isNaN)) words[0] = "The least likely rows come first, and incomplete rows come last.";
  words.push(`${whole(lowest)} ${lowest === 1 ? "is" : "are"} below the first percentile of ${reference}.`);
  if (some.length < rows) words.push(`The ${some.length} least likely rows are shown.`);
  if (ignored.length) words.push(`Columns that the fitted table did not have are ignored: ${ignored.join(", ")}.`);
  return words.join(" ");
}

const shortened = (percentile) => percentile.toFixed(percentile < 10 ? 1 : 0);

/** Returns the log probabilities of the columns of a row, the least likely first.
 * @param {ScoredRows} found @param {number} place */
function explanation({ arrays, explained, shown: numbers, reference, way }, place) {
  const title = `Row ${numbers[place] + 1}`;
  const about = make("span", { class: "quiet small", text: "log p of each column" });
  const [values, ranks] = [arrays.conditionals, arrays.ranks].map((all) => all && rowOf(all, place));
  if (!values || Number.isNaN(values[0])) return card(title, about, quiet(NO_PARTS));
  const parts = explained.map((name, i) => ({ name, value: values[i], rank: ranks?.[i] }));
  parts.sort((a, b) => (a.rank ?? 0) - (b.rank ?? 0) || a.value - b.value);
  const low = Math.min(...parts.map((part) => part.value).filter(Number.isFinite), -1);
  const bars = parts.flatMap(({ name, value, rank }) => {
    const bar = make("span", { class: rank !== undefined && rank < ODD ? "of-model odd" : "of-model" });
    bar.style.width = `${Math.max(2, Math.min(100, (100 * value) / low))}%`;
    const text = rank === undefined ? number(value, 3) : `${number(value, 3)} · ${shortened(rank)} %`;
    const track = make("span", { class: "track" }, bar);
    return [make("span", { text: name, title: name }), track, make("span", { class: "quiet", text })];
  });
  const given = way === "before" ? "given the columns before it" : "given all other columns";
  const ranked = `The last number is the percentile of the value in that column among ${reference}.`;
  const sum = ranks ? `exact, ${given}; their sum is the score. ${ranked}` : `by quadrature, ${given}.`;
  return card(title, about, make("div", { class: "why" }, ...bars), quiet(`Each value is ${sum}`));
}
