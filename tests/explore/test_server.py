"""The server: access control, folders that are not or no longer runs, limits, and the end of the process."""

from __future__ import annotations

import fcntl
import http.client
import json
import re
import shutil
import signal
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from tests.explore.pages import TOKEN, Page, Tab, ask, error_of, serving
from tests.explore.tables import fit_small, make_lists
from tests.helpers.processes import start_command, wait_until

from cubicflow.explore import row_scores, server
from cubicflow.explore.framed import framed, unframed
from cubicflow.explore.opened_run import open_run
from cubicflow.explore.overview import columns_answer, data_answer
from cubicflow.explore.server import listen, serve
from cubicflow.explore.threads import Worker
from cubicflow.flows.serialization import load_model
from cubicflow.tables import FittedTable
from cubicflow.training.checkpoint import RunNumbers, save_checkpoint

Serve = Callable[[Path], Page]


def test_who_is_answered(served: Serve, lists_run: Path) -> None:
    page = served(lists_run)
    assert ask(page, "/api/run")[0] == 200
    refused = {
        "no token": ask(page, "/api/run", Cookie=""),
        "another token": ask(page, "/api/run", Cookie=f"cubicflow-{page.port}={TOKEN}x"),
        "another port's cookie": ask(page, "/api/run", Cookie=f"cubicflow-1={TOKEN}"),
        "another origin": ask(page, "/api/run", Origin="http://evil.example"),
        "a page of another site": ask(page, "/api/run", Sec_Fetch_Site="cross-site"),
        "a form": ask(page, "/api/what-if", b"{}", X_Cubicflow=""),
    }
    assert {name: answer[0] for name, answer in refused.items()} == dict.fromkeys(refused, 403)
    assert ask(page, "/api/run", Host="evil.example")[0] == 421  # another host name that resolves to this machine
    assert ask(page, "/static/../app.py")[0] == 404
    assert ask(page, "/static/%2e%2e/app.py")[0] == 404
    headers = ask(page, "/")[2]
    assert "default-src 'self'" in headers["Content-Security-Policy"]
    assert "unsafe" not in headers["Content-Security-Policy"]
    opened = ask(page, f"/?token={TOKEN}", Cookie="")
    assert opened[0] == 200
    assert {"HttpOnly", "SameSite=Strict"} <= set(opened[2]["Set-Cookie"].split("; "))
    assert ask(page, "/?token=wrong", Cookie="")[2]["Set-Cookie"] is None
    assert ask(page, f"/?token={TOKEN}", Host="evil.example")[2]["Set-Cookie"] is None


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("/api/what-if", b"[]", "JSON object"),
        ("/api/what-if", b'{"conditions": {"tree": {"is": "elf"}}}', "never holds 'elf'"),
        ("/api/what-if", b'{"conditions": {"bush": {"is": "elf"}}}', "no column 'bush'"),
        ("/api/what-if", b'{"conditions": {"tree": {"like": "elf"}}}', "should have the key 'is', 'in' or 'missing'"),
        ("/api/sample", b'{"n": 1e9, "seed": 0}', "n must be 0 to"),
        ("/api/sample", b'{"n": 5, "seed": "x"}', "seed must be a whole number"),
        ("/api/sample", b'{"n": 1e400, "seed": 0}', "n must be a whole number, got 'inf'"),
        ("/api/density?x=0&y=9", None, "y must be 0 to 3"),
        ("/api/images", b'{"n": 5, "seed": 0, "temperature": 1}', "not a flow of images"),
        ("/api/score-rows?name=rows.csv", b"tree,rings\noak,one\n", "'age' is missing"),
        ("/api/score-rows?name=../../etc/passwd", b"root", "'passwd' has no known file type"),
        ("/api/score-rows?name=rows.parquet", b"no parquet", "rows.parquet"),
        ("/api/score-rows?name=rows.csv", b"", "rows.csv"),
    ],
)
def test_questions_that_cannot_be_answered_are_refused(
    path: str, body: bytes | None, said: str, served: Serve, lists_run: Path
) -> None:
    answer = ask(served(lists_run), path, body)
    assert answer[0] == 400
    assert said in error_of(answer)
    assert "/" not in error_of(answer).replace("'a/b'", "")  # the message shows no path of this machine


def test_uploads_are_limited(served: Serve, lists_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cubicflow.explore import app

    monkeypatch.setattr(app, "MOST_UPLOAD", 1 << 20)
    page = served(lists_run)
    assert ask(page, "/api/score-rows?name=rows.csv", b"x" * ((1 << 20) + 1))[0] == 413
    assert ask(page, "/api/what-if", b"[" * (1 << 17))[0] == 413
    monkeypatch.setattr(row_scores, "MOST_ROWS", 10)
    rows = make_lists(11).to_csv(index=False).encode()
    assert "more than 10 rows" in error_of(ask(page, "/api/score-rows?name=rows.csv", rows))


def test_nothing_is_left_of_an_upload(
    served: Serve, lists_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    rows = make_lists(5).to_csv(index=False).encode()
    assert ask(served(lists_run), "/api/score-rows?name=rows.csv", rows)[0] == 200
    assert list(tmp_path.iterdir()) == []


def test_a_browser_that_leaves(served: Serve, lists_run: Path) -> None:
    page = served(lists_run)
    for _ in range(5):
        with socket.create_connection(("127.0.0.1", page.port)) as leaving:
            head = f"POST /api/sample HTTP/1.1\r\nHost: 127.0.0.1:{page.port}\r\nX-Cubicflow: 1\r\n"
            cookie = f"Cookie: cubicflow-{page.port}={TOKEN}\r\nContent-Length: 4000\r\n\r\n"
            leaving.sendall((head + cookie).encode() + b'{"n": 100')
    assert ask(page, "/api/run")[0] == 200


def test_work_is_dropped_when_its_browser_leaves(lists_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples without end are asked for, and left: the first is running, and the others wait for it."""
    begun, rows, running = list[int](), FittedTable.sample_batches, threading.Event()

    def endless(fitted: FittedTable, n: int, *arguments: Any, **options: Any) -> Iterator[pa.RecordBatch]:
        begun.append(n)
        (batch,) = rows(fitted, min(n, 5), *arguments, **options)
        running.set()
        while n > 5:
            yield batch
        yield batch

    monkeypatch.setattr(FittedTable, "sample_batches", endless)
    with serving(lists_run) as page:
        head = f"Host: 127.0.0.1:{page.port}\r\nCookie: cubicflow-{page.port}={TOKEN}\r\n\r\n"
        first, *others = (socket.create_connection(("127.0.0.1", page.port)) for _ in range(20))
        for leaving in (first, *others):
            leaving.sendall(f"GET /api/sample.csv?n=100000&seed=0 HTTP/1.1\r\n{head}".encode())
            assert running.wait(300)
        for leaving in (*others, first):
            leaving.close()
            assert ask(page, "/api/run")[0] == 200
        answer = ask(page, "/api/sample", b'{"n": 5, "seed": 0}')
        assert len(unframed(answer[1])[0]["cells"]) == 5
    assert begun == [100_000, 5]


# --- damaged runs ---


def copied(run: Path, folder: Path) -> Path:
    shutil.copytree(run, folder / "copy")
    return folder / "copy"


def test_a_run_whose_data_has_gone(lists_run: Path, tmp_path: Path) -> None:
    run = copied(lists_run, tmp_path)
    config = json.loads((run / "config.json").read_text())
    config["table"]["source"] = str(tmp_path / "private" / "gone.csv")
    (run / "config.json").write_text(json.dumps(config))
    opened = open_run(run)
    assert len(unframed(columns_answer(opened))[1]["masses"])
    header, _ = unframed(data_answer(opened))
    assert header["rows"] == 0
    assert header["notes"] == ["The fitted table gone.csv no longer exists: only the model is shown."]
    rows = make_lists(5).to_csv(index=False).encode()
    question = {"content": rows, "name": "rows.csv", "pasted": False}
    scored, _ = unframed(row_scores.score_rows(opened, question))
    assert scored["reference"] == "rows drawn from the model"


def test_a_table_that_has_changed(lists_run: Path, tmp_path: Path) -> None:
    run = copied(lists_run, tmp_path)
    config = json.loads((run / "config.json").read_text())
    make_lists(50, seed=9).to_csv(tmp_path / "table.csv", index=False)
    config["table"]["source"] = str(tmp_path / "table.csv")
    (run / "config.json").write_text(json.dumps(config))
    assert "has changed since the fit" in unframed(data_answer(open_run(run)))[0]["notes"][0]


def test_a_damaged_run(lists_run: Path, tmp_path: Path) -> None:
    run = copied(lists_run, tmp_path)
    weights = (run / "model.safetensors").read_bytes()
    (run / "model.safetensors").write_bytes(weights[: len(weights) // 2])
    with serving(run) as page:
        said = error_of(ask(page, "/api/run"))
        assert "model.safetensors: not a complete safetensors file" in said
        assert str(tmp_path) not in said
        (run / "model.safetensors").write_bytes(weights)  # restores the weights
        assert ask(page, "/api/run")[0] == 200


def test_a_run_that_is_training(lists_run: Path, tmp_path: Path) -> None:
    """The page shows the best weights of the checkpoint, and reloads the run when its training has continued."""
    run = copied(lists_run, tmp_path)
    config = json.loads((run / "config.json").read_text())
    finished = json.dumps(config)
    model = load_model(run)
    tensors = {f"best.{name}": value for name, value in model.state_dict().items()}
    numbers: dict[str, Any] = {
        "elapsed": 1.0,
        "best_step": 5,
        "best_weights": "raw",
        "waited": 0,
        "last_read": 5,
        "best_loss": 1.0,
    }
    weights = (run / "model.safetensors").read_bytes()
    (run / "model.safetensors").unlink()
    config["result"] = {"finished": False}
    (run / "config.json").write_text(json.dumps(config))
    save_checkpoint(run, tensors, RunNumbers(step=5, **numbers))
    with (run / "lock").open("w") as lock, serving(run) as page:
        fcntl.flock(lock, fcntl.LOCK_EX)
        about, _ = unframed(ask(page, "/api/run")[1])
        assert about["state"] == "training"
        masses = unframed(ask(page, "/api/columns")[1])[1]["masses"]
        np.testing.assert_allclose(masses, unframed(columns_answer(open_run(lists_run)))[1]["masses"], atol=1e-6)
        with_zeros = {name: value * 0 for name, value in tensors.items()}
        save_checkpoint(run, with_zeros, RunNumbers(step=9, **numbers))
        later, _ = unframed(ask(page, "/api/run")[1])
        assert later["version"] != about["version"]
        assert np.abs(unframed(ask(page, "/api/columns")[1])[1]["masses"] - masses).max() > 0.01
        fcntl.flock(lock, fcntl.LOCK_UN)
        assert unframed(ask(page, "/api/run")[1])[0]["state"] == "stopped"
        (run / "model.safetensors").write_bytes(weights)
        (run / "checkpoint.safetensors").unlink()
        (run / "config.json").write_text(finished)
        assert unframed(ask(page, "/api/run")[1])[0]["state"] == "finished"


SMALL = {"hidden_features": 4, "num_bins": 4, "token_features": 2, "num_blocks": 1}


def test_sixty_columns(tmp_path: Path, tab: Tab) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({f"c{i}": rng.integers(0, 60, 200) for i in range(60)})
    with serving(fit_small(frame, tmp_path, settings=SMALL, steps=1)) as page:
        about, arrays = unframed(ask(page, "/api/columns")[1])
        assert len(about["columns"]) == 60
        assert np.isfinite(arrays["masses"]).all()
        question = {"conditions": {"c59": {"from": "5", "to": "50"}}}
        answer = ask(page, "/api/what-if", json.dumps(question).encode())
        assert answer[0] == 200, answer[1][:300]
        assert unframed(answer[1])[0]["effectiveSize"] >= 500
        shown = tab.open(page, "overview")
        assert shown.locator("article path.model[d^=M], article .bars").count() == 60
        assert tab.wrong == []


def test_four_thousand_words(tmp_path: Path) -> None:
    rows = 4_200
    frame = pd.DataFrame({"n": np.arange(rows) % 50, "word": [f"w{i % 4_000}" for i in range(rows)]})
    with serving(fit_small(frame, tmp_path, settings=SMALL, steps=1)) as page:
        about, _ = unframed(ask(page, "/api/columns")[1])
        word = next(column for column in about["columns"] if column["name"] == "word")
        assert word["words"] == 4_000
        assert len(word["bars"]) == 24  # 23 words, and one bar for all other words
        assert len(word["menu"]) <= 400
        question = {"conditions": {"word": {"in": ["w17"]}}}
        answer = ask(page, "/api/what-if", json.dumps(question).encode())
        assert answer[0] == 200, answer[1][:300]


# --- the command ---


def test_the_command_says_its_address_and_ends_at_once(lists_run: Path, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        command = start_command("explore", lists_run, "--no-browser", "--port", port, log=tmp_path / "log")
        wait_until(lambda: command.log.exists() and command.log.read_text().count("\n") == 3, command)
        first, address, how = command.log.read_text().splitlines()
        assert first == f"port {port} is in use; the next free port is used"
        found = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/\?token=([\w-]{32})", address)
        assert found is not None
        assert int(found[1]) > port
        assert how == "press Ctrl-C to stop the server"
        held = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=300)
        held.request("GET", "/api/run", headers={"Cookie": f"cubicflow-{found[1]}={found[2]}"})
        assert unframed(held.getresponse().read())[0]["state"] == "finished"  # the connection stays open
        command.send_signal(signal.SIGTERM)
        assert command.wait() == 0  # a server that waited for the connection would not end
        held.close()
        assert command.log.read_text().splitlines() == [first, address, how]


def test_the_token_is_in_no_argument_of_a_browser(
    lists_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All users of a machine see the arguments of a process. The file that leads to the page is its owner's alone."""
    script = tmp_path / "browser"
    script.write_text(
        f'#!/bin/sh\nfile="${{1#file://}}"\nls -l "$file" > {tmp_path}/rights\ncat "$file" > {tmp_path}/content\n'
        f'echo "$@" > {tmp_path}/arguments\n'
    )
    script.chmod(0o700)
    monkeypatch.setenv("BROWSER", f"{script} %s")
    monkeypatch.setattr("webbrowser._tryorder", None)  # makes the module read BROWSER again
    opened, open_link, said = threading.Event(), webbrowser.open, list[str]()
    monkeypatch.setattr(webbrowser, "open", lambda link: (open_link(link), opened.set()))
    monkeypatch.setattr(server.Server, "run", lambda *_, **__: opened.wait(300))
    serve(lists_run, port=0, browser=True, report=said.append)
    link, address = (tmp_path / "arguments").read_text().strip(), said[0]
    assert re.fullmatch(r"file:///\S+\.html", link)
    assert address.partition("token=")[2] not in link
    assert (tmp_path / "rights").read_text().startswith("-rw------- ")
    assert f'url={address}"' in (tmp_path / "content").read_text()
    assert not Path(link.removeprefix("file://")).exists()


def test_a_folder_without_a_run_is_refused_in_one_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    from cubicflow.cli import main

    monkeypatch.setattr(sys, "argv", ["cubicflow", "explore", str(tmp_path), "--no-browser"])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    said = capfd.readouterr().err
    assert said.count("\n") == 1
    assert "the folder does not hold a saved flow" in said


def test_without_its_packages_one_line_says_which(
    lists_run: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from cubicflow.cli import main

    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "cubicflow.explore.server")
    monkeypatch.setattr(sys, "argv", ["cubicflow", "explore", str(lists_run), "--no-browser"])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    remedy = "use: pip install 'cubicflow[explore]'"
    assert capfd.readouterr().err == f"error: the page needs uvicorn, which is not installed; {remedy}\n"


def test_ports() -> None:
    first, taken = listen(0)
    assert taken is None
    port = first.getsockname()[1]
    second, taken = listen(port)
    assert taken == port
    assert second.getsockname()[0] == "127.0.0.1"
    first.close()
    second.close()


def test_frames_keep_arrays() -> None:
    rng = np.random.default_rng(0)
    arrays = {
        "a": rng.random((3, 5)).astype(np.float32),
        "b": rng.random(7),
        "c": rng.integers(0, 255, (2, 3, 4)).astype(np.uint8),
        "d": np.arange(3, dtype=np.int32),
    }
    header, found = unframed(framed({"name": "größe"}, arrays))
    assert header["name"] == "größe"
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)
    with pytest.raises(TypeError, match="has dtype float16; convert it to one of float32, float64, int32, uint8"):
        framed({}, {"x": np.zeros(2, np.float16)})
    with pytest.raises(ValueError, match="not an answer of the page"):
        unframed(b"damaged")


def test_a_worker_continues_after_an_error() -> None:
    import asyncio

    async def both() -> int:
        worker = Worker("a test")
        with pytest.raises(ZeroDivisionError):
            await worker.run(lambda: 1 // 0)
        return await worker.run(lambda: 7)

    with ThreadPoolExecutor(1) as thread:  # a new thread, because browser tests may run an event loop in this thread
        assert thread.submit(lambda: asyncio.run(both())).result() == 7
