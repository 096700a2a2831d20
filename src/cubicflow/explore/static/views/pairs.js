// Pairs: two columns at a time, data and model side by side. The rows inside a brush are shown in every column.

/** @import { Columns, Points } from "../types" */
import { get, kept } from "../answers.js";
import { picture } from "../chart.js";
import { card, copy, empty, fill, remember, remembered, whole } from "../page.js";
import { Panel } from "../panel.js";
import { Selection } from "../selection.js";
import { drawNotes } from "../state.js";

const MOST = 24; // columns whose selected rows are drawn

/** @param {HTMLElement} page */
export async function draw(page) {
  /** @type {Columns} */
  const { columns } = await kept("api/columns");
  if (columns.length < 2) {
    page.append(empty("There is only one column", "A pair needs two columns. The view Overview shows this column."));
    return;
  }
  /** @type {Points} */
  const { notes, arrays } = await kept("api/points");
  drawNotes(notes);
  const rows = arrays.data ?? arrays.model;
  const selection = new Selection(columns, rows);
  const view = copy("pairs");
  const names = columns.map(({ name }) => name);
  const left = new Panel(selection, arrays.data ? "data" : "samples", rows, arrays.data ? "--data-ink" : "--model");
  const right = new Panel(selection, "model", arrays.model, "--model");
  const pictures = columns.slice(0, MOST).map((column) => picture(column, { height: 54 }));

  const mark = () => {
    const marked = selection.brush ? selection.selected() : null;
    for (const panel of [left, right]) panel.mark();
    pictures.forEach((each, i) => each.draw({ data: selection.all.columns[i], model: marked?.columns[i] }));
    const all = `${whole(selection.count)} rows of ${arrays.data ? "the data" : "the model"}`;
    view.status.textContent = marked ? `${whole(marked.total)} of ${all} are selected` : "";
  };
  const choose = async () => {
    selection.brush = null;
    for (const panel of [left, right]) panel.choose();
    mark();
    const { x, y } = selection;
    const found = await get(`api/density?x=${x}&y=${y}`);
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
  view.clear.addEventListener("click", () => {
    selection.brush = null;
    mark();
  });
  for (const panel of [left, right]) panel.listen(mark);
  view.squares.append(left.element, right.element);
  view.grid.classList.toggle("of-rows", Boolean(arrays.data));
  view.grid.append(...pictures.map(({ element }, i) => card(names[i], element).element));
  page.append(view.content);
  await choose();
}
