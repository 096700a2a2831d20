"""The cached overview: for the same state only, without torch, and behind the token."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.explore.pages import ask, serving

from cubicflow.explore import cached_overview
from cubicflow.explore.cached_overview import OVERVIEW, CachedOverview
from cubicflow.explore.explorer import Explorer
from cubicflow.flows.serialization import CONFIG_FILE, WEIGHTS_FILE
from cubicflow.training.checkpoint import NEWEST


@pytest.fixture
def run(lists_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CUBICFLOW_CACHE", str(tmp_path / "cache"))
    shutil.copytree(lists_run.parent, tmp_path, dirs_exist_ok=True)  # with its table, whose times a test changes
    config = tmp_path / "run" / CONFIG_FILE
    config.write_text(config.read_text().replace(str(lists_run.parent.resolve()), str(tmp_path.resolve())))
    return tmp_path / "run"


def fill(run: Path) -> dict[str, bytes]:
    """Open a run for the first time, and return the answers of the overview."""
    explorer = Explorer(run, CachedOverview(run))
    explorer.answer("training", {})  # the overview does not need this answer
    found = {route: explorer.answer(route, {})[0] for route in OVERVIEW}
    explorer.close()
    return found


def test_an_overview_is_cached_for_one_state(run: Path) -> None:
    assert CachedOverview(run).answers == {}
    found = fill(run)
    assert CachedOverview(run).answers == found
    with serving(run) as page:
        assert {route: ask(page, f"/api/{route}")[1] for route in OVERVIEW} == found
    weights = (run / WEIGHTS_FILE).read_bytes()
    (run / WEIGHTS_FILE).write_bytes(weights)  # the same bytes with another time: another state
    assert CachedOverview(run).answers == {}
    fill(run)
    table = Path(json.loads((run / CONFIG_FILE).read_text())["table"]["source"])
    before = table.stat().st_mtime_ns
    os.utime(table, ns=(before, before + 1))
    assert CachedOverview(run).answers == {}
    os.utime(table, ns=(before, before))
    assert set(CachedOverview(run).answers) == set(OVERVIEW)
    CachedOverview(run).path.write_bytes(b"damaged")
    assert CachedOverview(run).answers == {}


def test_an_overview_of_other_code_is_not_shown(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers of an earlier page have another form, also if the version of the package is the same."""
    found, code = fill(run), tmp_path / "code"
    shutil.copytree(Path(cached_overview.__file__).parent, code)  # with the times of the files
    monkeypatch.setattr(cached_overview, "__file__", str(code / "cached_overview.py"))
    assert CachedOverview(run).answers == found
    (code / "overview.py").write_text("# another form")
    assert CachedOverview(run).answers == {}


def test_no_overview_of_an_unfinished_run_is_cached(run: Path) -> None:
    config = json.loads((run / CONFIG_FILE).read_text())
    config["result"]["finished"] = False
    (run / CONFIG_FILE).write_text(json.dumps(config))
    cached = CachedOverview(run)
    for route in OVERVIEW:
        cached.keep(route, b"x")
    assert cached.answers == {}
    assert not cached.path.exists()


def test_the_names_of_the_files_of_a_run() -> None:
    assert (cached_overview.CONFIG, cached_overview.WEIGHTS, cached_overview.CHECKPOINT) == (
        CONFIG_FILE,
        WEIGHTS_FILE,
        NEWEST,
    )


def test_the_page_comes_before_torch() -> None:
    """Everything up to the overview of a run that was opened before is imported without torch."""
    code = "import cubicflow.cli.explore, cubicflow.explore.app, cubicflow.explore.server, sys, typer, uvicorn\n"
    code += "from cubicflow.cli.terminal import clear_errors\nwith clear_errors(): print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


def test_the_command_shows_a_cached_overview_to_those_with_the_token(run: Path) -> None:
    found = fill(run)
    command = [sys.executable, "-m", "cubicflow", "explore", str(run), "--no-browser", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    address = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/\?token=(.+)", process.stdout.readline().strip())
    assert address is not None
    port, token = address.groups()

    def get(path: str, cookie: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=300)
        connection.request("GET", path, headers={"Cookie": cookie})
        answer = connection.getresponse()
        status, content = answer.status, answer.read()
        connection.close()
        return status, content

    try:
        for path in ("/", "/static/main.js", "/api/run", f"/api/{OVERVIEW[-1]}"):
            assert get(path, f"cubicflow-{port}=wrong")[0] == 403
        for route in OVERVIEW:
            assert get(f"/api/{route}", f"cubicflow-{port}={token}") == (200, found[route])
        # The whole application answers the rest, and its columns have the bins of the kept cached.
        assert get("/api/training", f"cubicflow-{port}={token}")[0] == 200
        assert get("/api/columns", f"cubicflow-{port}={token}") == (200, found["columns"])
    finally:
        process.terminate()
        process.communicate(timeout=300)
