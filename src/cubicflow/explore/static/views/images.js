// Images: samples at a temperature, and a path from one sample to another through noise space.

import { post } from "../framed.js";
import { empty, failed, latest, make } from "../page.js";

const COUNT = 24, STEPS = 11;

export async function draw(page, run) {
  if (run.kind !== "images") {
    page.append(empty("This run has no images", "This view shows samples of a flow of images, which cubicflow.flows.image builds."));
    return;
  }
  const ask = { temperature: 0.7, seed: 0 };
  const chosen = [0, 1];
  const slider = make("input", { type: "range", min: 0.05, max: 1.3, step: 0.05, value: ask.temperature, "aria-label": "temperature" });
  const shown = make("strong", { text: "0.70" });
  const mosaic = make("div", { class: "mosaic", role: "group", "aria-label": "samples" }), strip = make("div", { class: "strip", tabindex: "0", role: "img", "aria-label": "the path between the two chosen images" });
  const wrong = make("div");
  page.append(make("section", {}, make("h2", { text: "Samples" }),
    make("p", { class: "lead", text: "The temperature scales the noise. A low temperature gives typical images; 1 gives samples of the model. Choose two images to see a path between them." }),
    make("div", { class: "row wide" }, make("label", {}, "temperature ", shown), slider),
    make("div", { class: "row" }, make("button", { text: "Other samples", onclick: () => { ask.seed += 1; samples(); } })), wrong, mosaic),
  make("section", {}, make("h2", { text: "From one image to the other, through noise space" }), strip));

  const buttons = Array.from({ length: COUNT }, (_, i) => {
    const canvas = make("canvas");
    const button = make("button", { type: "button", "aria-pressed": String(chosen.includes(i)), "aria-label": `sample ${i + 1}` }, canvas);
    button.addEventListener("click", () => {
      if (chosen.includes(i)) return;
      chosen.shift();
      chosen.push(i);
      buttons.forEach((other, j) => other.setAttribute("aria-pressed", String(chosen.includes(j))));
      way();
    });
    return button;
  });
  mosaic.append(...buttons);

  const samples = latest(async () => {
    try {
      const found = await post("api/images", { ...ask, n: COUNT });
      wrong.replaceChildren();
      buttons.forEach((button, i) => paint(button.firstChild, found.arrays.images, i));
      page.dataset.drawn = String(Number(page.dataset.drawn || 0) + 1);
      await way();
    } catch (error) { wrong.replaceChildren(failed(error)); }
  });
  const way = latest(async () => {
    try {
      const found = await post("api/path", { ...ask, first: chosen[0], last: chosen[1], steps: STEPS });
      strip.replaceChildren(...Array.from({ length: STEPS }, (_, i) => { const canvas = make("canvas"); paint(canvas, found.arrays.images, i); return canvas; }));
    } catch (error) { strip.replaceChildren(failed(error)); }
  });
  slider.addEventListener("input", () => { ask.temperature = Number(slider.value); shown.textContent = ask.temperature.toFixed(2); samples(); });
  await samples();
}

function paint(canvas, images, i) {
  const [, height, width, channels] = images.shape;
  canvas.width = width; canvas.height = height;
  const pen = canvas.getContext("2d"), image = pen.createImageData(width, height);
  const start = i * height * width * channels;
  for (let p = 0; p < height * width; p += 1) {
    for (let c = 0; c < 3; c += 1) image.data[4 * p + c] = images[start + p * channels + (channels === 3 ? c : 0)];
    image.data[4 * p + 3] = 255;
  }
  pen.putImageData(image, 0, 0);
}
