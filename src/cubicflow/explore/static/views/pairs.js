// Pairs: two columns at a time, data and model side by side. The rows inside a brush are shown in every column.

import { drawNotes, kept } from "../answers.js";
import { ColumnCard } from "../chart.js";
import { copy, empty, fill, remember, remembered, whole } from "../page.js";
import { Panel } from "../panel.js";
import { Selection } from "../selection.js";

const MOST = 24; // columns whose selected rows are drawn

export async function draw() {
  const { columns } = await kept("columns");
  const instead = "A pair needs two columns. The view Overview shows this column.";
  if (columns.length < 2) return { content: empty("There is only one column", instead) };
  const { notes, arrays } = await kept("points");
  drawNotes(notes);
  const selection = new Selection(columns, arrays);
  const view = copy("pairs");
  const names = columns.map(({ name }) => name);
  const [title, colour] = arrays.data ? ["data", "--data-ink"] : ["samples", "--model"];
  const left = new Panel(selection, title, selection.rows, colour);
  const right = new Panel(selection, "model", arrays.model, "--model");
  const cards = columns.slice(0, MOST).map((column) => new ColumnCard(column, 54));

  const mark = () => {
    const marked = selection.brush && selection.masses(selection.holds(selection.rows));
    for (const panel of [left, right]) panel.mark();
    cards.forEach((card, i) => card.draw({ data: selection.all.columns[i], model: marked?.columns[i] }));
    const all = `${whole(selection.count)} rows of ${arrays.data ? "the data" : "the model"}`;
    view.status.textContent = marked ? `${whole(marked.total)} of ${all} are selected` : "";
  };
  const clear = () => {
    selection.brush = null;
    mark();
  };
  const choose = async () => {
    for (const panel of [left, right]) panel.choose();
    clear();
    const { x, y } = selection;
    const found = await kept(`density?x=${x}&y=${y}`);
    if (x === selection.x && y === selection.y) right.shade(found);
  };
  for (const axis of ["x", "y"]) {
    const index = names.indexOf(remembered().get(axis) ?? "");
    if (index >= 0) selection[axis] = index;
    fill(view[axis], Object.entries(names), selection[axis]);
    view[axis].addEventListener("change", () => {
      selection[axis] = Number(view[axis].value);
      remember("pairs", { x: names[selection.x], y: names[selection.y] });
      choose();
    });
  }
  view.clear.addEventListener("click", clear);
  for (const panel of [left, right]) panel.listen(mark);
  view.squares.append(left.parts.content, right.parts.content);
  view.grid.classList.toggle("of-rows", Boolean(arrays.data));
  view.grid.append(...cards.map(({ element }) => element));
  await choose();
  return view;
}
