"""Screenshots of every view of `cubicflow explore` for docs/explore.md: light and dark, wide and narrow.

    python -m benchmarks.explore_screenshots --table diamonds --plane demo/grace-hopper --images fashion

Each option takes a run folder: a model of columns of diamonds.csv (`cubicflow fit diamonds.csv -o diamonds`), the
portrait of `make demo`, and a flow of Fashion-MNIST (`--fit-images FOLDER` fits a small one, for `--seconds`). An
option that is absent skips its screenshots. Needs playwright and a Chromium (CUBICFLOW_CHROMIUM holds its path).
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome-headless-shell")
WAIT = 120_000  # milliseconds
SETTLED = "main:not([data-ready='0']):not([aria-busy])"  # the view has drawn all answers that it asked for
SAMPLED = "[aria-label='sampled rows']"
STAGE, GAP = 240, 10  # pixels of a stage of the map, and between two stages
COLOURS = 40  # colours of most pictures; few colours keep the file small
MANY_COLOURS = 256  # colours of pictures with points or densities


class Shot(NamedTuple):
    """One screenshot: its run, the address after the #, the selector to wait for, the size and the colour scheme."""

    name: str
    run: str
    address: str
    ready: str
    width: int = 1280
    height: int = 860
    is_dark: bool = False


SHOTS = (
    Shot("overview", "table", "#/overview", SETTLED, height=1120),
    Shot("pairs", "table", "#/pairs?x=carat&y=price", SETTLED, height=900),
    Shot("what-if", "table", "#/what-if?carat=1&clarity=VS2", SAMPLED, height=1180),
    Shot("what-if-dark", "table", "#/what-if?price=4000..6000&cut=Ideal", SAMPLED, height=900, is_dark=True),
    Shot("rows", "table", "#/rows", ".why", height=900),
    Shot("overview-narrow", "table", "#/overview", SETTLED, 400, 1000),
    Shot("what-if-narrow", "table", "#/what-if?carat=1", SAMPLED, 400, 1000),
    Shot("layers", "plane", "#/layers", SETTLED, 1000, 900),
    Shot("layers-dark", "plane", "#/layers", SETTLED, 1000, 900, True),
    Shot("images", "images", "#/images", ".strip canvas", height=760),
)
ODD_ROWS = """carat,cut,color,clarity,depth,table,price,x,y,z
0.7,Ideal,G,VS2,61.8,56,2600,5.72,5.75,3.54
0.7,Ideal,G,VS2,61.8,56,12600,5.72,5.75,3.54
1.01,Fair,J,IF,70.1,60,900,6.1,6.0,4.24
1.5,Premium,H,SI1,61.0,58,9800,7.4,7.35,1.53
0.31,Very Good,E,VVS2,62.1,55,760,4.33,4.36,2.70
"""


@contextmanager
def served(run: Path) -> Iterator[str]:
    """Start a server for a run, yield the address of its page, and stop the server at the end of the block."""
    command = [sys.executable, "-m", "cubicflow", "explore", str(run), "--no-browser", "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        if server.stdout is None:
            raise RuntimeError("the server has no output")
        found = next((line for line in server.stdout if line.startswith("http")), None)
        if found is None:
            raise RuntimeError(f"{run}: the server did not start")
        yield found.strip()
    finally:
        server.terminate()
        server.wait(20)


@contextmanager
def chromium() -> Iterator[Any]:
    """Yield a headless browser that is installed on this machine."""
    from playwright.sync_api import sync_playwright

    path = os.environ.get("CUBICFLOW_CHROMIUM") or next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        raise SystemExit("no Chromium found: install one, or set CUBICFLOW_CHROMIUM to its path")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


def take(browser: Any, address: str, shot: Shot, path: Path) -> None:
    """Take a screenshot and save it with a small palette."""
    from PIL import Image

    scheme = "dark" if shot.is_dark else "light"
    size = {"width": shot.width, "height": shot.height}
    page = browser.new_context(viewport=size, color_scheme=scheme).new_page()
    page.set_default_timeout(WAIT)
    page.goto(address)
    page.goto(re.sub(r"\?.*", "", address) + shot.address)
    page.reload()
    if shot.name == "rows":
        page.wait_for_selector("textarea")
        page.fill("textarea", ODD_ROWS)
        page.click("text=Score the pasted rows")
        page.wait_for_selector(".why")
        page.evaluate("document.querySelector('textarea').scrollIntoView()")
    else:
        page.wait_for_selector(shot.ready)
        page.wait_for_selector(SETTLED)
    if shot.name.startswith("layers") and shot.run == "plane":
        move = "(e) => { e.value = 0.5 * e.max; e.dispatchEvent(new Event('input')); }"
        page.locator("main input[type=range]").first.evaluate(move)
    page.wait_for_timeout(700)
    page.screenshot(path=str(path))
    page.context.close()
    with Image.open(path) as image:
        colours = MANY_COLOURS if shot.run == "plane" or shot.name == "pairs" else COLOURS
        image.convert("RGB").quantize(colours, dither=Image.Dither.NONE).save(path, optimize=True)
    print(f"{path}: {path.stat().st_size / 1024:.0f} KiB", flush=True)


def flowing(browser: Any, address: str, path: Path) -> None:
    """Save five stages of the portrait's map to the unit square side by side."""
    from PIL import Image

    page = browser.new_context(viewport={"width": 760, "height": 1000}, color_scheme="light").new_page()
    page.set_default_timeout(WAIT)
    page.goto(address)
    page.goto(re.sub(r"\?.*", "", address) + "#/layers")
    page.reload()
    page.wait_for_selector(SETTLED)
    last = float(page.locator("main input[type=range]").first.get_attribute("max"))
    moments = []
    with tempfile.TemporaryDirectory() as folder:
        for i in range(5):
            move = f"(e) => {{ e.value = {last * i / 4}; e.dispatchEvent(new Event('input')); }}"
            page.locator("main input[type=range]").first.evaluate(move)
            page.wait_for_timeout(150)
            page.locator("main canvas").first.screenshot(path=f"{folder}/{i}.png")
            with Image.open(f"{folder}/{i}.png") as image:
                moments.append(image.convert("RGB").resize((STAGE, round(STAGE * image.height / image.width))))
    page.context.close()
    strip = Image.new("RGB", (len(moments) * (STAGE + GAP) - GAP, moments[0].height), "white")
    for i, moment in enumerate(moments):
        strip.paste(moment, (i * (STAGE + GAP), 0))
    strip.quantize(MANY_COLOURS).save(path, optimize=True)
    print(f"{path}: {path.stat().st_size / 1024:.0f} KiB", flush=True)


def fit_images(data: Path, run: Path, seconds: float) -> None:
    """Fit a small flow to Fashion-MNIST, good enough for a screenshot."""
    import torch
    from paper.data.images import load_fashion_mnist

    from cubicflow.flows.image_recipe import dequantise, image
    from cubicflow.training import fit

    train = torch.from_numpy(load_fashion_mnist(data).train[:20_000])
    settings: dict[str, Any] = {"batch_size": 64, "learning_rate": 1e-3, "validation_fraction": 0.01, "patience": 0}
    flow = image((1, 28, 28), num_layers=4, hidden_features=32)
    fit(flow, dequantise(train.reshape(-1, 1, 28, 28)), time_budget=seconds, run=run, overwrite=True, **settings)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("table", "plane", "images"):
        parser.add_argument(f"--{name}", type=Path, help="a run folder")
    parser.add_argument("-o", "--output", type=Path, default=Path("docs/images/explore"))
    parser.add_argument("--only", help="names of screenshots, separated by commas")
    parser.add_argument(
        "--fit-images", type=Path, metavar="FOLDER", help="folder of Fashion-MNIST; fit the run of --images to it first"
    )
    parser.add_argument("--seconds", type=float, default=900, help="time limit of --fit-images")
    arguments = parser.parse_args()
    if arguments.fit_images is not None:
        fit_images(arguments.fit_images, arguments.images, arguments.seconds)
    arguments.output.mkdir(parents=True, exist_ok=True)
    only = arguments.only.split(",") if arguments.only else None
    with chromium() as browser:
        for kind in ("table", "plane", "images"):
            shots = [shot for shot in SHOTS if shot.run == kind and (only is None or shot.name in only)]
            run = getattr(arguments, kind)
            if run is None or (not shots and kind != "plane"):
                continue
            with served(run) as address:
                for shot in shots:
                    take(browser, address, shot, arguments.output / f"{shot.name}.png")
                if kind == "plane" and (only is None or "flowing" in only):
                    flowing(browser, address, arguments.output / "flowing.png")


if __name__ == "__main__":
    main()
