"""What happens on an open page: a brush, playing, refining, dropped files, a run that changes, and the colour scheme.

Also what all views must be: readable for everyone, by the rules of axe-core, and never wider than the screen.
"""

from __future__ import annotations

import fcntl
import json
import shutil
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.explore.pages import Page, Tab, ask, serving
from tests.explore.tables import make_table

from cubicflow.explore.framed import framed, unframed
from cubicflow.flows.serialization import load_model
from cubicflow.training.checkpoint import RunNumbers, save_checkpoint

Serve = Callable[[Path], Page]
VIEWS = ("overview", "pairs", "what-if", "rows", "layers", "images")
DROP = """([name, text]) => {
  const transfer = new DataTransfer(), drop = document.querySelector(".drop");
  transfer.items.add(new File([text], name));
  for (const kind of ["dragenter", "dragover", "drop"])
    drop.dispatchEvent(new DragEvent(kind, { dataTransfer: transfer, bubbles: true, cancelable: true }));
}"""
PICTURE = "document.querySelector('main canvas').toDataURL()"


def drag(shown: Any, box: list[float]) -> None:
    """Drag the mouse over the first picture between two corners, which are shares of its axes, and move on."""
    canvas = shown.locator("main canvas").first
    canvas.scroll_into_view_if_needed()
    at = canvas.bounding_box()
    (x0, x1), (y0, y1) = (
        [at["x"] + at["width"] * x for x in box[::2]],
        [at["y"] + at["height"] * (1 - y) for y in box[1::2]],
    )
    shown.mouse.move(x0, y0)
    shown.mouse.down()
    shown.mouse.move(x1, y1, steps=3)
    shown.mouse.up()
    shown.mouse.move(x0 - 5, y0 + 5)  # the button is up, so nothing more is selected


def test_a_dragged_brush_selects_the_rows_inside_it(served: Serve, flow_run: Path, tab: Tab) -> None:
    page = served(flow_run)
    columns = unframed(ask(page, "/api/columns")[1])[0]["columns"]
    rows = pd.read_csv(flow_run.parent / "table.csv").to_numpy()
    edges = [np.array(column["edges"]) for column in columns]
    box = [0.2, 0.1, 0.7, 0.65]
    inside = np.ones(len(rows), bool)
    for k in (0, 1):
        low, high = edges[k][[0, -1]]
        share = (rows[:, k] - low) / (high - low)
        assert np.abs(share[:, None] - [box[k], box[k + 2]]).min() > 1e-4  # no row is on the border
        inside &= (share >= box[k]) & (share <= box[k + 2])
    assert 10 < inside.sum() < 190
    shown = tab.open(page, "pairs?x=one&y=two")
    drag(shown, box)
    assert shown.inner_text("[data-part=status]") == f"{inside.sum()} of 200 rows of the data are selected"
    # The line of the third column is the histogram of the selected rows, with the server's edges.
    card = shown.locator("article", has=shown.get_by_role("heading", name="three", exact=True))
    heights = np.histogram(rows[inside, 2], edges[2])[0] / np.diff(edges[2])
    others = np.histogram(rows[:, 2], edges[2])[0] / np.diff(edges[2])
    top = 1.06 * max((heights / inside.sum()).max(), (others / len(rows)).max())
    drawn = np.array([point.split() for point in card.locator("path.model").get_attribute("d")[1:].split("L")], float)
    assert (drawn[::2, 1] == drawn[1::2, 1]).all()  # each bin has one level
    np.testing.assert_allclose(drawn[::2, 1], 1000 * (1 - heights / inside.sum() / top), atol=0.06)
    shown.get_by_role("button", name="clear the selection").click()
    assert shown.inner_text("[data-part=status]") == ""
    assert not shown.locator(".brush").first.is_visible()
    assert tab.wrong == []


def test_playing_moves_the_points_from_the_data_to_the_noise(served: Serve, plane_run: Path, tab: Tab) -> None:
    shown = tab.open(served(plane_run), "layers")
    slider = shown.get_by_label("place between data and noise")
    last = float(slider.get_attribute("max"))
    assert shown.inner_text("[data-part=status]") == "the data"
    shown.get_by_role("button", name="next ›").click()
    assert float(slider.input_value()) == 1
    assert shown.inner_text("[data-part=status]").startswith(f"after layer 1 of {last:.0f}: ")
    shown.get_by_role("button", name="‹ back").click()
    data = shown.evaluate(PICTURE)
    slider.evaluate("(e) => { e.value = e.max - 0.2; e.dispatchEvent(new Event('input')); }")
    shown.get_by_role("button", name="Play").click()
    shown.wait_for_selector("[data-part=play]:text-is('Play')")
    assert float(slider.input_value()) == last
    assert shown.inner_text("[data-part=status]").endswith("noise")
    assert shown.evaluate(PICTURE) != data
    assert tab.wrong == []


def test_an_answer_behind_few_rows_is_refined(served: Serve, mixed_run: Path, tab: Tab) -> None:
    """The page shows the first answer, asks once more, and shows the better one."""
    asked: list[dict[str, Any]] = []

    def answer(route: Any) -> None:
        question = json.loads(route.request.post_data)
        asked.append(question)
        found = route.fetch()
        size = 2000.0 if question.get("refine") else 20.0
        header, arrays = unframed(found.body())
        route.fulfill(status=200, body=framed({**header, "effectiveSize": size}, arrays))

    tab.page.route("**/api/what-if", answer)
    shown = tab.open(served(mixed_run), "what-if?legs=2")
    assert [bool(question.get("refine")) for question in asked] == [False, True]
    assert asked[0]["conditions"] == asked[1]["conditions"] == {"legs": {"in": ["2"]}}
    assert "effective size 2,000" in shown.inner_text("#asked")
    assert "refining" not in shown.inner_text("#asked")
    assert tab.wrong == []


def test_answers_are_shown_while_a_slider_moves(served: Serve, counts_run: Path, tab: Tab) -> None:
    """A question that arrives during another one waits, and the answer to the first is shown meanwhile."""
    shown, held = tab.open(served(counts_run), "what-if?rings=25"), list[Any]()
    slider, words = shown.get_by_label("value of rings", exact=True), shown.locator(".bars .share")
    tab.page.route("**/api/what-if", lambda route: held.append(route))
    seen = [words.all_inner_texts()]
    for rings in (30, 35, 45):
        slider.evaluate(f"(e) => {{ e.value = {rings}; e.dispatchEvent(new Event('input')); }}")
    for rings in ("30", "45"):  # 35 was not the latest when the first answer came
        while not held:
            shown.wait_for_timeout(10)
        (route,) = held
        assert json.loads(route.request.post_data)["conditions"]["rings"] == {"is": rings}
        held.clear()
        with shown.expect_response("**/api/what-if"):
            route.continue_()
        shown.evaluate("new Promise((done) => setTimeout(done, 50))")
        seen.append(words.all_inner_texts())
    assert seen[0] != seen[1] != seen[2]
    assert tab.wrong == []


def test_the_path_leads_from_one_image_to_the_other(served: Serve, image_run: Path, tab: Tab) -> None:
    shown = tab.open(served(image_run), "images")
    read = """(all) => all.map((canvas) => {
      const pen = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
      pen.drawImage(canvas, 0, 0);
      return [...pen.getImageData(0, 0, canvas.width, canvas.height).data];
    })"""

    def images(part: str) -> Any:
        tab.settled()
        return np.array(shown.locator(f"[data-part={part}] canvas").evaluate_all(read), float)

    def check(first: int, last: int) -> None:
        samples, path = images("mosaic"), images("strip")
        assert len(path) == 11
        for sample, end in ((first, path[0]), (last, path[-1])):
            assert np.abs(samples[sample] - end).max() <= 1  # of 255: rounding
        assert np.abs(path[5] - path[[0, -1]]).max() > 10

    check(0, 1)
    for i in (5, 9):
        shown.get_by_role("button", name=f"sample {i + 1}", exact=True).click()
    assert [int(label.split()[1]) for label in _pressed(shown)] == [6, 10]
    check(5, 9)
    before = images("mosaic")
    shown.get_by_role("button", name="Other samples").click()
    check(5, 9)
    assert np.abs(images("mosaic") - before).max() > 10
    shown.get_by_label("temperature").evaluate("(e) => { e.value = 0.05; e.dispatchEvent(new Event('input')); }")
    check_cold = images("mosaic")
    assert check_cold.std(axis=0).mean() < before.std(axis=0).mean()
    assert shown.inner_text("[data-part=shown]") == "0.05"
    assert tab.wrong == []


def _pressed(shown: Any) -> list[str]:
    pressed = shown.locator("[data-part=mosaic] [aria-pressed=true]")
    found: list[str] = pressed.evaluate_all("(all) => all.map((one) => one.ariaLabel)")
    return found


def test_a_dropped_file_is_scored(served: Serve, mixed_run: Path, tab: Tab) -> None:
    shown = tab.open(served(mixed_run), "rows")
    shown.evaluate(DROP, ["new.csv", make_table(7, seed=5).to_csv(index=False)])
    tab.settled()
    assert shown.locator("tbody tr").count() == 7
    assert not shown.locator(".drop.over").count()
    shown.evaluate(DROP, ["new.docx", "no table"])
    tab.settled()
    assert "'new.docx' has no known file type" in shown.inner_text("main .error")


def test_a_training_run_that_goes_on(lists_run: Path, browser: Any, tmp_path: Path) -> None:
    """The page follows the checkpoints of a run while it trains, says when it stops, and when it is gone."""
    run = tmp_path / "run"
    shutil.copytree(lists_run, run)
    config = json.loads((run / "config.json").read_text())
    tensors = {f"best.{name}": value for name, value in load_model(run).state_dict().items()}
    numbers: dict[str, Any] = {
        "elapsed": 1.0,
        "best_step": 5,
        "best_weights": "raw",
        "waited": 0,
        "last_read": 5,
        "best_loss": 1.0,
    }
    (run / "model.safetensors").unlink()
    (run / "config.json").write_text(json.dumps(config | {"result": {"finished": False}}))
    save_checkpoint(run, tensors, RunNumbers(step=5, **numbers))
    tab = Tab(browser)
    tab.page.clock.install()
    with (run / "lock").open("w") as lock, serving(run) as page:
        fcntl.flock(lock, fcntl.LOCK_EX)
        shown = tab.open(page, "what-if?tree=oak")
        assert "still training" in shown.inner_text("#notes")
        before = tab.masses(page, "age")
        save_checkpoint(run, {name: value * 0 for name, value in tensors.items()}, RunNumbers(step=9, **numbers))
        # A question about the columns of the earlier checkpoint gets a sentence, and the page opens the new one.
        with shown.expect_response("**/api/columns"):
            shown.get_by_role("group", name="values of tree").get_by_role("button", name="ash").click()
        after = tab.masses(page, "age")
        assert shown.get_by_role("group", name="values of tree").locator("[aria-pressed=true]").count() == 2
        assert max(abs(after[word] - before[word]) for word in ("old", "young")) > 0.01
        fcntl.flock(lock, fcntl.LOCK_UN)
        shown.clock.fast_forward(6000)
        shown.wait_for_selector("#notes >> text=stopped before training ended")
        tab.settled()
        shutil.rmtree(run)
        shown.clock.fast_forward(6000)
        shown.wait_for_selector("#notes >> text=The page shows an earlier state of the run.")
        assert str(tmp_path) not in shown.inner_text("#notes")
        assert shown.locator("main article").count() == 4
    shown.clock.fast_forward(6000)
    shown.wait_for_selector("#notes >> text=The server has stopped: start cubicflow explore again.")
    tab.context.close()


def test_another_colour_scheme_keeps_what_the_user_did(served: Serve, flow_run: Path, tab: Tab) -> None:
    shown = tab.open(served(flow_run), "pairs")
    drag(shown, [0.2, 0.1, 0.7, 0.65])
    selected, colours = shown.inner_text("[data-part=status]"), shown.evaluate(PICTURE)
    line = "getComputedStyle(document.querySelector('path.model')).stroke"
    light = shown.evaluate(line)
    shown.emulate_media(color_scheme="dark")
    shown.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert shown.evaluate(line) != light
    assert shown.evaluate(PICTURE) != colours
    assert shown.inner_text("[data-part=status]") == selected
    assert tab.wrong == []


@pytest.mark.parametrize("kind", ["mixed_run", "plane_run", "image_run"])
def test_every_view_is_accessible_and_fits_the_screen(
    kind: str, served: Serve, browser: Any, request: pytest.FixtureRequest
) -> None:
    """axe-core finds nothing, in both colour schemes, and no view scrolls sideways on a phone, tablet or desktop."""
    axe = files("axe_playwright_python").joinpath("axe.min.js").read_text()
    tab = Tab(browser)
    for view in VIEWS:
        shown = tab.open(served(request.getfixturevalue(kind)), view)
        if view == "rows" and kind != "image_run":
            shown.fill("textarea", make_table(3).to_csv(index=False) if kind == "mixed_run" else "0.1,0.2\n0.5,0.5")
            shown.click("text=Score the pasted rows")
        if view == "what-if" and kind == "mixed_run":
            shown.get_by_label("condition on size (m²)").select_option("range")
        tab.settled()
        for width in (390, 1024, 1440):
            shown.set_viewport_size({"width": width, "height": 900})
            assert shown.evaluate("document.documentElement.scrollWidth") <= width, (view, width)
        shown.evaluate(axe)
        for scheme in ("light", "dark"):
            shown.emulate_media(color_scheme=scheme)
            found = shown.evaluate("axe.run().then((found) => found.violations)")
            assert [(one["id"], [node["html"][:200] for node in one["nodes"]]) for one in found] == [], (view, scheme)
    assert tab.wrong == []
    tab.context.close()


def test_ticks_are_round_and_inside_the_axis(served: Serve, lists_run: Path, tab: Tab) -> None:
    """Ticks of numbers are multiples of 1, 2 or 5 times a power of ten; ticks of dates start what their label names."""
    shown = tab.open(served(lists_run), "rows")
    rng = np.random.default_rng(0)
    lows = np.concatenate([rng.normal(0, 1e3, 200), [0, -1, 1e-9, 1e15]])
    wide = np.maximum(np.concatenate([10.0 ** rng.uniform(-6, 9, 200), [1, 2, 1e-9, 1e15]]), 1e-6 * np.abs(lows))
    asked = [[float(low), float(low + width)] for low, width in zip(lows, wide, strict=True)]
    code = "(asked) => import('/static/axis.js').then((m) => asked.map(([a, b]) => m.numberTicks(a, b, 5)))"
    for (low, high), ticks in zip(asked, shown.evaluate(code, asked), strict=True):
        values = np.array([value for value, _ in ticks])
        assert 1 <= len(ticks) <= 6
        assert ((values >= low - 1e-6 * (high - low)) & (values <= high + 1e-6 * (high - low))).all()
        if len(values) > 1:
            step = np.diff(values).mean()
            mantissa = step / 10.0 ** np.floor(np.log10(step) + 1e-9)
            assert min(abs(mantissa - m) for m in (1, 2, 5)) < 1e-3
            assert np.abs(values / step - np.round(values / step)).max() < 1e-3
    seconds = 10.0 ** rng.uniform(1, 10.5, 200)
    starts = rng.uniform(-6e10, 6e9, 200)
    asked = [[float(start), float(start + width)] for start, width in zip(starts, seconds, strict=True)]
    code = "(asked) => import('/static/axis.js').then((m) => asked.map(([a, b]) => m.dateTicks(a, b, 4)))"
    for (low, high), ticks in zip(asked, shown.evaluate(code, asked), strict=True):
        assert 1 <= len(ticks) <= 6
        for value, label in ticks:
            assert low <= value <= high
            instant = str(np.datetime64(round(value), "s"))
            date, time = instant.split("T")
            if ":" in label:
                assert time.startswith(label)
                assert time[len(label) :] in ("", ":00")
            else:
                assert time == "00:00:00"
                named = label if "-" in label else label.zfill(4)
                assert date in (named, f"{named}-01", f"{named}-01-01")
