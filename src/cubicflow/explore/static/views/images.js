// Images: samples at a temperature, and a path from one sample to another through noise space.

import { post } from "../answers.js";
import { copy, failed, latest, make } from "../page.js";
import { pixels } from "../scatter.js";

const COUNT = 24; // samples
const STEPS = 11; // images of a path

/** @param {HTMLElement} page */
export async function draw(page) {
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
    const images = ({ arrays }) => buttons.forEach(({ canvas }, i) => paint(arrays.images, i, canvas));
    wrong.replaceChildren((await found.then(images, failed)) ?? "");
    await path();
  });
  const buttons = Array.from({ length: COUNT }, (_, i) => {
    const canvas = make("canvas");
    const button = make("button", { "aria-label": `sample ${i + 1}`, onclick: () => choose(i) }, canvas);
    return { button, canvas };
  });
  const choose = (i) => {
    if (!chosen.includes(i)) chosen = [chosen[1], i];
    buttons.forEach(({ button }, j) => button.setAttribute("aria-pressed", String(chosen.includes(j))));
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
  mosaic.append(...buttons.map(({ button }) => button));
  page.append(content);
  choose(0);
  await samples();
}

/** @param {Shaped} images @param {number} i @param {HTMLCanvasElement} [canvas] */
function paint(images, i, canvas) {
  const [, tall, wide, channels] = images.shape;
  const first = i * tall * wide * channels;
  const colours = channels === 3 ? [0, 1, 2] : [0, 0, 0];
  return pixels(wide, tall, (p) => [...colours.map((c) => images[first + p * channels + c]), 255], canvas);
}
