// Images: samples at a temperature, and a path from one sample to another through noise space.

import { post } from "../answers.js";
import { copy, failed, latest, make } from "../page.js";
import { pixels } from "../scatter.js";

const COUNT = 24; // samples
const STEPS = 11; // images of a path

export async function draw() {
  const { content, slider, shown, other, wrong, mosaic, strip } = copy("images");
  const question = { temperature: Number(slider.value), seed: 0 };
  let chosen = [0, 1]; // the ends of the path
  const path = latest(async () => {
    const [first, last] = chosen;
    const found = post("path", { ...question, first, last, steps: STEPS });
    const images = ({ arrays }) => Array.from({ length: STEPS }, (_, i) => paint(arrays.images, i));
    strip.replaceChildren(...(await found.then(images, (error) => [failed(error)])));
  });
  const samples = latest(async () => {
    const found = post("images", { ...question, n: COUNT });
    const images = ({ arrays }) => canvases.forEach((canvas, i) => paint(arrays.images, i, canvas));
    wrong.replaceChildren((await found.then(images, failed)) ?? "");
    await path();
  });
  const canvases = Array.from({ length: COUNT }, () => make("canvas"));
  const buttons = canvases.map((canvas, i) =>
    make("button", { "aria-label": `sample ${i + 1}`, onclick: () => choose(i) }, canvas),
  );
  const choose = (i) => {
    if (!chosen.includes(i)) chosen = [chosen[1], i];
    buttons.forEach((button, j) => button.setAttribute("aria-pressed", String(chosen.includes(j))));
    path();
  };
  slider.addEventListener("input", () => {
    question.temperature = Number(slider.value);
    shown.textContent = question.temperature.toFixed(2);
    samples();
  });
  other.addEventListener("click", () => {
    question.seed += 1;
    samples();
  });
  mosaic.append(...buttons);
  choose(0);
  await samples();
  return { content };
}

/** @param {Shaped} images @param {number} i @param {HTMLCanvasElement} [canvas] */
function paint(images, i, canvas) {
  const [, tall, wide, channels] = images.shape;
  const first = i * tall * wide * channels;
  const colours = channels === 3 ? [0, 1, 2] : [0, 0, 0];
  return pixels(wide, tall, (p) => [...colours.map((c) => images[first + p * channels + c]), 255], canvas);
}
