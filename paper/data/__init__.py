"""The five benchmark tables of density estimation: POWER, GAS, HEPMASS, MINIBOONE and BSDS300."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from paper.data import bsds300, gas, hepmass, miniboone, power
from paper.data.benchmark_table import PUBLISHED, Benchmark, Form, Provenance
from paper.data.downloads import download
from paper.data.folders import MissingDataError, data_folder, find, how_to_choose_folder

__all__ = ["BENCHMARKS", "PUBLISHED", "Benchmark", "Form", "Provenance", "download", "load_benchmark"]

# name -> accepted forms of its files, best first
BENCHMARKS: dict[str, tuple[Form, ...]] = {
    "power": power.FORMS,
    "gas": gas.FORMS,
    "hepmass": hepmass.FORMS,
    "miniboone": miniboone.FORMS,
    "bsds300": bsds300.FORMS,
}


def load_benchmark(name: str, folder: str | Path | None = None, *, form: str | None = None, seed: int = 0) -> Benchmark:
    """Load one of the five tables, prepared by its published recipe.

    Args:
        name: ``"power"``, ``"gas"``, ``"hepmass"``, ``"miniboone"`` or ``"bsds300"``.
        folder: the data folder. Default: the folder in CUBICFLOW_DATA, else ``data`` in the cache folder.
        form: the form of the files, for example ``"raw"``. Default: the first form whose files are complete; the
            published array comes before the raw file.
        seed: seed of a table that is redrawn.

    Raises MissingDataError if files are missing. The message gives their names, their origin and where to put them:

    >>> try:
    ...     load_benchmark("power", "no/such/folder")
    ... except MissingDataError as error:
    ...     print(str(error).splitlines()[0])
    POWER was not found. Any one of these forms will do:
    """
    candidate, paths = find_form(name, folder, form=form)
    return candidate.read(paths, seed)


def find_form(name: str, folder: str | Path | None = None, *, form: str | None = None) -> tuple[Form, tuple[Path, ...]]:
    """Return the form in which :func:`load_benchmark` would read a table, and its files. No file is read.

    Raises MissingDataError if files are missing.
    """
    try:
        forms = BENCHMARKS[name.lower()]
    except KeyError:
        raise ValueError(f"unknown benchmark table {name!r}; there are {', '.join(BENCHMARKS)}") from None
    candidates = [candidate for candidate in forms if form in (None, candidate.name)]
    if not candidates:
        raise ValueError(f"{name} has no form {form!r}; its forms are {', '.join(repr(f.name) for f in forms)}")
    root = data_folder(folder)
    for candidate in candidates:
        paths = [path for names in candidate.files if (path := find(root, names)) is not None]
        if len(paths) == len(candidate.files) and (form is not None or candidate.refusal is None):
            return candidate, tuple(paths)
    raise MissingDataError(_instructions(name.lower(), root, candidates))


def _instructions(name: str, root: Path, forms: Sequence[Form]) -> str:
    lines = [f"{name.upper()} was not found. Any one of these forms will do:"]
    for form in forms:
        needed = [(find(root, names), names[0]) for names in form.files]
        lines.append(f"  {form.name}: {', '.join(str(root / best) for _, best in needed)}")
        lines.append(f"    from {form.origin}")
        if all(path is not None for path, _ in needed) and form.refusal is not None:
            lines.append(f"    The file exists, but {form.refusal}")
        elif any(path is not None for path, _ in needed):
            lines.append(f"    Still missing: {', '.join(str(root / best) for path, best in needed if path is None)}")
    lines.append(f'To download: paper.data.download("{name}", folder). {how_to_choose_folder(root)}')
    return "\n".join(lines)
