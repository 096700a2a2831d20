// The page: chooses the view, draws the head, and follows a run whose folder changes.

import { get } from "./framed.js";
import { sweep } from "./charts.js";
import { empty, failed, loading, make } from "./page.js";
import { drawNotes, state } from "./state.js";

const VIEWS = [
  ["overview", "Overview"], ["pairs", "Pairs"], ["what-if", "What if"], ["rows", "Rows"], ["layers", "Layers"], ["images", "Images"],
];
const REFRESH = 5000;
const main = document.getElementById("view");

function current() {
  const name = location.hash.replace(/^#\/?/, "").split("?")[0];
  if (VIEWS.some(([view]) => view === name)) return name;
  return state.run && state.run.kind === "images" ? "images" : "overview";
}

function drawHead() {
  const { run } = state;
  document.title = `${run.name} · cubicflow`;
  document.getElementById("run-name").textContent = run.name;
  const words = [run.model, `${run.parameters.toLocaleString("en")} parameters`];
  if (run.source) words.push(`fitted to ${run.source}`);
  if (run.step) words.push(`${run.step.toLocaleString("en")} steps`);
  document.getElementById("run-about").textContent = words.join(" · ");
  drawNotes(run.notes);
}

function drawNav() {
  const here = current();
  document.getElementById("views").replaceChildren(...VIEWS.map(([view, name]) =>
    make("a", { href: `#/${view}`, "aria-current": view === here ? "page" : undefined, text: name })));
  const marked = document.querySelector("nav a[aria-current]");
  if (marked) marked.parentElement.scrollLeft = marked.offsetLeft - 40;
}

async function show() {
  const view = current(), mine = (state.shown += 1);
  drawNav();
  main.replaceChildren(loading("Opening"));
  main.dataset.view = view;
  main.dataset.ready = "no";
  try {
    if (!state.run) { state.run = await get("api/run"); drawHead(); if (current() !== view) { show(); return; } }
    const module = await import(`./views/${view}.js`);
    const content = make("div");
    if (mine !== state.shown) return;
    if (state.view && state.view.leave) state.view.leave();
    main.replaceChildren(content);
    state.view = (await module.draw(content, state.run)) || null;
    if (mine === state.shown) main.dataset.ready = "yes";
  } catch (error) {
    if (mine !== state.shown) return;
    main.replaceChildren(state.run ? failed(error) : empty("This run cannot be shown", error.message));
    main.dataset.ready = "failed";
  }
  sweep();
}

async function follow() {
  try {
    const now = await get("api/run");
    const before = state.run;
    if (!before) { await show(); setTimeout(follow, REFRESH); return; }
    if (String(now.version) !== String(before.version) || now.state !== before.state) {
      state.run = now;
      state.kept.clear();
      drawHead();
      const y = window.scrollY;
      if (!(state.view && state.view.stays)) await show(); // a view with `stays` holds what the user entered
      window.scrollTo(0, y);
    }
  } catch { /* the server was stopped, or the run is being written: try again later */ }
  setTimeout(follow, REFRESH);
}

// The first address has the token, which now is in a cookie.
if (location.search) history.replaceState(null, "", location.pathname + location.hash);
// The link past the head moves the focus only: the part of the address after # is the view.
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
window.addEventListener("hashchange", () => { show(); window.scrollTo(0, 0); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
show().then(() => setTimeout(follow, REFRESH)); // a stopped run may be resumed, and a finished one fitted again
