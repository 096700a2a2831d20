"""Check a wheel in an environment with cubicflow's wheel and its required dependencies only.

    python tests/wheel/empty_environment.py [--pure]

The script imports, fits, scores, samples, saves and loads. Then it calls what needs an extra; each error must name the
extra in one line. With --pure the native library must be absent, with one warning; otherwise it must work.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import warnings
from importlib.util import find_spec
from pathlib import Path

EXTRAS = {
    "pyarrow": "cubicflow[cli]",
    "typer": "cubicflow[cli]",
    "onnx": "cubicflow[onnx]",
    "sklearn": "cubicflow[sklearn]",
}


def main(pure: bool) -> None:
    import torch

    import cubicflow as cf
    from cubicflow.splines.backends import native
    from cubicflow.training import fit

    installed = Path(cf.__file__)
    assert "site-packages" in installed.parts, f"cubicflow was imported from {installed}, not from the wheel"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.manual_seed(0)
        x = torch.randn(400, 2) @ torch.tensor([[1.0, 0.8], [0.0, 0.6]])
        flow = cf.flows.tabular(2, num_layers=2, hidden_features=16)
        before = float(flow.log_prob(x).mean())
        fit(flow, x, steps=30, batch_size=100, progress=False)
        after = float(flow.log_prob(x).mean())
        assert after > before, f"training made it worse: {before} to {after}"
        assert flow.sample(5, seed=0).shape == (5, 2)
        with tempfile.TemporaryDirectory() as folder:
            flow.save(folder)
            assert torch.equal(cf.load(folder).log_prob(x), flow.log_prob(x))
    slow = [str(warning.message) for warning in caught if "many times slower" in str(warning.message)]
    assert (native.unavailable() is not None) == pure, native.unavailable()
    assert len(slow) == pure, f"said {len(slow)} times that the library is missing"
    assert not any("\n" in line for line in slow)
    missing_extras()
    sys.stdout.write(f"imports, fits, scores and samples: {'pure' if pure else 'native'}, {installed.parent}\n")


def missing_extras() -> None:
    """Check that every call that needs an absent package fails with one line that names the extra."""
    import cubicflow as cf
    from cubicflow.export import export_model

    flow = cf.flows.tabular(1, num_layers=1, hidden_features=8)
    calls = {
        "pyarrow": lambda: cf.tables.FittedTable,
        "sklearn": lambda: cf.CubicFlowDensity,
        "onnx": lambda: export_model(flow, Path(tempfile.gettempdir(), "never.onnx")),
    }
    for package, call in calls.items():
        if find_spec(package) is not None:
            continue
        said = ""
        try:
            call()
        except ImportError as error:
            said = str(error)
        assert EXTRAS[package] in said, f"{package} is not there, and what was said is: {said}"
        assert "\n" not in said, said
    if find_spec("typer") is None:
        command = [str(Path(sys.executable).with_name("cubicflow")), "--help"]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ended.returncode, ended
        assert EXTRAS["typer"] in ended.stderr, ended
        assert ended.stderr.count("\n") == 1, ended


if __name__ == "__main__":
    main("--pure" in sys.argv[1:])
