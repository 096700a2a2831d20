"""Which calls the native backend takes, its messages without the library, and the build of the library."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch

from cubicflow.splines import cubic_spline, dispatch, linear_spline
from cubicflow.splines.backends import native
from cubicflow.splines.backends.native import library
from cubicflow.splines.domains import DOMAINS
from cubicflow.splines.families import FAMILIES

from .kernels import needs_library, points

ROOT = Path(__file__).parents[3]
X, PARAMS = torch.zeros(3), torch.zeros(3, 10)
REINSTALL = "reinstall with: pip install --no-deps --force-reinstall --no-cache-dir --no-binary cubicflow cubicflow"


@needs_library
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: linear_spline(X, PARAMS, backend="native"), "no native kernel for the linear spline"),
        (lambda: cubic_spline(X.to("meta"), PARAMS.to("meta"), backend="native"), "must be on the CPU; got meta"),
        (lambda: cubic_spline(torch.zeros([1] * 13), PARAMS[0], backend="native"), "at most 12 axes, got 13"),
        (
            lambda: cubic_spline(X, PARAMS, min_bin_width=1e-12, backend="native"),
            "floors on bins must be at least 3e-10",
        ),
    ],
)
def test_refusals_name_the_reason(call, message):
    with pytest.raises(RuntimeError, match=message):
        call()


@needs_library
def test_auto_takes_native_on_the_cpu():
    found, named = (cubic_spline(points(9), torch.ones(9, 12), backend=backend)[0] for backend in ("auto", "native"))
    assert torch.equal(found, named)
    assert linear_spline(X, PARAMS)[0].shape == (3,)  # the reference runs, because linear splines have no kernel


@pytest.fixture
def reload():
    library.load.cache_clear()
    yield
    library.load.cache_clear()


@pytest.mark.parametrize("text", [None, "not a library"], ids=["missing", "broken"])
def test_without_the_library_auto_works_and_native_raises_with_a_remedy(monkeypatch, tmp_path, reload, text):
    path = tmp_path / "libcubicflow.so"
    if text is not None:
        path.write_text(text)
    monkeypatch.setattr(library, "LIBRARY", path)
    assert "reinstall" in native.unavailable()
    with pytest.raises(RuntimeError, match=r"backend='native' cannot run this call: the compiled library .* reinstall"):
        cubic_spline(X, PARAMS, backend="native")
    y, _ = cubic_spline(X, PARAMS)
    assert (y.abs() <= 1e-6).all()


@needs_library
def test_a_library_of_another_version_is_not_used(monkeypatch, reload):
    for constant in library.CONSTANTS:  # including the size of struct spline_call
        library.load.cache_clear()
        with monkeypatch.context() as patch:
            patch.setitem(library.CONSTANTS, constant, library.CONSTANTS[constant] * 1.001)
            assert f"another version of cubicflow ({constant})" in native.unavailable()
    for table, key in ((FAMILIES, ("linear", None)), (DOMAINS, "unit")):
        library.load.cache_clear()
        with monkeypatch.context() as patch:
            patch.setitem(table, key, table[key]._replace(kernel="UNHEARD_OF"))
            assert "another version of cubicflow (UNHEARD_OF)" in native.unavailable()


@needs_library
@pytest.mark.parametrize("change", ["edited", "added", "renamed"])
def test_a_library_of_other_sources_is_not_used(monkeypatch, tmp_path, reload, change):
    """The library was built from other sources than those beside it, as after a pull or a switch of branches."""
    root = tmp_path / "checkout"
    sources = root / "src" / "cubicflow" / "splines" / "backends" / "native" / "csrc"
    shutil.copytree(library.SOURCES, sources)
    monkeypatch.setattr(library, "SOURCES", sources)
    assert native.unavailable() is None
    library.load.cache_clear()
    if change == "edited":
        header = sources / "unit.h"
        header.write_text(header.read_text().replace("1e-3", "2e-3"))
    elif change == "added":
        (sources / "new.h").write_text("")
    else:
        (sources / "unit.h").rename(sources / "other.h")
    advice = f"built from other sources than those in {sources}; reinstall with: pip install --no-deps -e {root}"
    assert advice in native.unavailable()
    with pytest.raises(RuntimeError, match="built from other sources"):
        cubic_spline(X, PARAMS, backend="native")
    assert (cubic_spline(X, PARAMS)[0].abs() <= 1e-6).all()  # the reference runs instead


def test_a_missing_library_warns_once_with_the_remedy(monkeypatch, tmp_path, reload):
    monkeypatch.setattr(library, "LIBRARY", tmp_path / "libcubicflow.so")
    dispatch.warn_if_slow.cache_clear()
    with pytest.warns(
        UserWarning, match=r"^splines run many times slower .*was not built.*reinstall with: .*$"
    ) as warned:
        [cubic_spline(X, PARAMS) for _ in range(2)]
    assert len(warned) == 1
    assert "\n" not in str(warned[0].message)
    dispatch.warn_if_slow.cache_clear()


@needs_library
def test_a_library_from_before_there_were_hashes_is_not_used(monkeypatch, reload):
    monkeypatch.setattr(library.ctypes, "CDLL", lambda *_, **__: object())
    assert "another version of cubicflow; reinstall with: pip install" in native.unavailable()


@needs_library
def test_an_installed_library_has_no_sources_beside_it(monkeypatch, tmp_path, reload):
    monkeypatch.setattr(library, "SOURCES", tmp_path / "csrc")
    assert native.unavailable() is None
    library.load.cache_clear()
    monkeypatch.setitem(library.CONSTANTS, "MARGIN", 2e-3)
    assert REINSTALL in native.unavailable()


def test_a_call_is_described_to_c_as_c_declares_it():
    """The fields of both structs agree with the header: their names, types and order."""
    header = (library.SOURCES / "call.h").read_text()
    types = {"int64_t": ctypes.c_int64, "double": ctypes.c_double, "struct axes": library.Axes}
    for name, structure in (("axes", library.Axes), ("spline_call", library.Call)):
        body = re.search(rf"struct {name} {{(.*?)}};", header, re.DOTALL).group(1)
        declared = re.findall(r"^ *(int64_t|double|struct axes) (\w+)(\[MAX_AXES\])?;", body, re.MULTILINE)
        fields = [(field, types[kind] * library.MAX_AXES if array else types[kind]) for kind, field, array in declared]
        assert fields == list(structure._fields_)
        assert len(fields) == body.count(";")


@needs_library
def test_one_thread_where_torch_has_no_openmp(monkeypatch, reload):
    monkeypatch.setattr(library, "_gomp_parallel", lambda: None)
    x, params = points(20_000), torch.randn(20_000, 12, dtype=torch.float64)
    found = cubic_spline(x, params, backend="native")
    library.load.cache_clear()
    monkeypatch.undo()
    assert all(map(torch.equal, found, cubic_spline(x, params, backend="native")))


# --- the build -------------------------------------------------------------------------------------------------------


@pytest.mark.soak
@pytest.mark.parametrize(
    "settings",
    [{"CC": "/bin/false"}, {"CC": "/nonexistent/cc"}, {"CUBICFLOW_PURE": "1"}, {}],
    ids=["failing", "missing", "pure", "working"],
)
def test_a_wheel_builds_with_and_without_a_compiler(tmp_path, settings):
    if not settings and shutil.which("cc") is None:
        pytest.skip("there is no C compiler here")
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("*.so", "*.egg-info", "__pycache__"))
    command = [sys.executable, "-m", "pip", "wheel", ".", "-v", "--no-build-isolation", "--no-deps", "-w", "out"]
    built = subprocess.run(command, cwd=tmp_path, env=os.environ | settings, check=True, capture_output=True, text=True)
    (wheel,) = (tmp_path / "out").glob("*.whl")
    assert "-py3-none-" in wheel.name
    assert wheel.name.endswith("-any.whl") == bool(settings)
    assert ("this is the pure wheel" in built.stdout + built.stderr) == bool(settings)
    names = zipfile.ZipFile(wheel).namelist()
    assert any(name.endswith("libcubicflow.so") for name in names) == (not settings)
    assert not any("csrc" in name for name in names)
    assert any(name.endswith("native/launch.py") for name in names)
