// The page: chooses the view, draws the head, and follows a run whose folder changes.

import { ask, CHANGED, drawNotes, newView, state, working } from "./answers.js";
import { byId, empty, failed, loading, whole } from "./page.js";
import { recolour } from "./scatter.js";

const REFRESH = 5000; // milliseconds
const main = byId("view");
const links = [...byId("views").querySelectorAll("a")];
let shown = 0; // the number of the shown view
let view = /** @type {{leave?: () => void, stays?: boolean}} */ ({}); // what the shown view returned

function drawHead() {
  const { run } = state;
  if (!run) return;
  document.title = `${run.name} · cubicflow`;
  byId("run-name").textContent = run.name;
  const [source, steps] = [run.source && `fitted to ${run.source}`, run.step && `${whole(run.step)} steps`];
  const words = [run.model, `${whole(run.parameters)} parameters`, source, steps];
  byId("run-about").textContent = words.filter(Boolean).join(" · ");
  drawNotes();
}

async function show() {
  shown = newView();
  const mine = shown;
  main.replaceChildren(loading("Opening"));
  view.leave?.();
  view = {};
  await working(draw(mine)).catch((error) => {
    if (mine !== shown) return;
    main.replaceChildren(state.run ? failed(error) : empty("This run cannot be shown", error.message));
  });
}

async function draw(/** @type {number} */ mine) {
  if (!state.run) {
    state.run = await ask("run");
    drawHead();
  }
  const { run } = state;
  if (!run || mine !== shown) return;
  const wanted = links.find(({ hash }) => hash === location.hash.split("?")[0]);
  const link = wanted ?? links[run.kind === "images" ? links.length - 1 : 0];
  const name = link.hash.slice(2);
  main.dataset.view = name;
  for (const each of links) each.ariaCurrent = each === link ? "page" : null;
  byId("views").scrollLeft = link.offsetLeft - 40;
  const query = `template[data-instead="${name}"][data-kinds~="${run.kind}"]`;
  const instead = /** @type {HTMLTemplateElement | null} */ (document.querySelector(query));
  const copied = instead?.content.cloneNode(true);
  const found = copied ? { content: copied } : await (await import(`./views/${name}.js`)).draw(run);
  if (mine !== shown) return void found.leave?.();
  view = found;
  main.replaceChildren(found.content);
}

async function follow() {
  let news = "";
  try {
    const now = await ask("run");
    const before = state.run;
    const isNew = now.version !== before?.version;
    if (isNew || now.state !== before?.state) {
      state.run = now;
      drawHead();
    }
    if (isNew) {
      state.kept.clear();
      const y = window.scrollY;
      if (!view.stays) await show(); // a view that stays holds what the user entered
      window.scrollTo(0, y);
    }
  } catch (error) {
    const { name, message } = /** @type {Error} */ (error);
    const isLost = name === "TypeError"; // nobody has answered
    const why = isLost ? "The server has stopped: start cubicflow explore again." : message;
    news = `The page shows an earlier state of the run. ${why}`;
  }
  if (news === state.news) return;
  state.news = news;
  drawNotes();
}

// The first address has the token, which now is in a cookie.
if (location.search) history.replaceState(null, "", location.pathname + location.hash);
// The link past the head moves the focus only: the part of the address after # is the view.
document.querySelector(".skip")?.addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
window.addEventListener("hashchange", () => {
  show();
  window.scrollTo(0, 0);
});
document.addEventListener(CHANGED, follow);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);
await show();
window.setInterval(follow, REFRESH); // a stopped run may be resumed, and a finished one fitted again
