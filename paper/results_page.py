"""The page of results: the paper's figures and table with our numbers.

Every number on the page is read from a record. The page is written by a command, never by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.machine import name_of

from cubicflow.files import write_atomically
from paper.claims import claims_table
from paper.experiment import EXPERIMENTS, read_json
from paper.figure_2 import GAUSSIANS
from paper.figure_2_report import density_table, how_to_read
from paper.table_1_report import main_table

PAGE_FILE = "README.md"
WITH_PAPER = ("figure-2", "figure-3")  # experiments with the option --paper
Record = Mapping[str, Any]

HEAD = """# The paper, rerun

*Cubic-Spline Flows* (Durkan, Bekasov, Murray and Papamakarios, 2019), figure by figure. The command
`python -m paper page -o results` writes this page from the records beside it (`NAME/NAME.json`: numbers, settings,
seed, hardware, versions, time). Quick runs are not results and do not appear here."""

RERUN = """\
All settings are in the recipes in [`paper/recipes`](../paper/recipes). Settings that only other packages need are in
`paper/peers.py`. The environment variable `CUBICFLOW_DATA` names the data folder. The command of each record is below
it. Each command continues where an earlier call stopped. `--seconds` limits the time of a call; the limit changes no
result. `paper/gpu.sh` runs experiments on a machine that is lent for a limited time. Table 1 needs one command for each
cell:

    python -m paper table-1 -o results/table-1 --dataset power --model cubic-paper --device cuda
    python -m paper page -o results"""


def write_page(folder: Path) -> Path:
    """Write the page from the records in ``folder``. Each record is in a subfolder with the experiment's name."""
    records = {name: record for name in EXPERIMENTS if (record := read_record(folder / name, name)) is not None}
    parts = [HEAD, f"## The paper's claims\n\n{claims_table(records)}"]
    for name, (title, section) in SECTIONS.items():
        record = records.get(name)
        text = section(record, folder / name) if record else f"Not yet run: `python -m paper {name}`."
        parts.append(f"## {title}\n\n{text}" + (f"\n\n{_provenance(record)}" if record else ""))
        if record and name in WITH_PAPER:
            parts.append(_of_the_paper(folder / f"{name}-paper", name, section))
    parts.append(f"## How to rerun\n\n{RERUN}" + _missing_data(records.get("table-1")))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / PAGE_FILE
    if path.exists() and not path.read_text(encoding="utf-8", errors="replace").startswith(HEAD.splitlines()[0]):
        raise ValueError(f"{path} is not a page of results, and would be overwritten; choose another folder with -o")
    write_atomically(path, ("\n\n".join(parts) + "\n").encode())
    return path


def read_record(folder: Path, name: str) -> Record | None:
    """Return the record of an experiment; None if there is no record, or only the record of a quick run.

    The key ``remarks`` has the text of remarks.md beside the record: remarks of a person who looked at the pictures.
    """
    path, remarks = folder / f"{name}.json", folder / "remarks.md"
    if not path.exists():
        return None
    record = read_json(path)
    if not {"quick", "results", "settings", "machine", "command", "finished"} <= record.keys():
        raise ValueError(f"{path} is damaged; run again: python -m paper {name} -o {folder}")
    text = " ".join(remarks.read_text(encoding="utf-8").split()) if remarks.exists() else ""
    return None if record["quick"] else {**record, "remarks": text}


def _missing_data(table: Record | None) -> str:
    """Return a list of the datasets of table 1 that could not be rerun, with the origin of each."""
    datasets = table["results"]["datasets"] if table else {}
    lines = [
        f"- {name.upper()}: {about['left_out'].rstrip('.')}." for name, about in datasets.items() if about["left_out"]
    ]
    return "\n\nWhat could not be rerun:\n\n" + "\n".join(lines) if lines else ""


def _of_the_paper(folder: Path, name: str, section: Callable[[Record, Path], str]) -> str:
    """Return the section on the model as the paper describes it."""
    record = read_record(folder, name)
    title = "### The model as the paper describes it"
    if record is None:
        command = f"python -m paper {name} --paper -o results/{folder.name}"
        return f"{title}\n\nThis model has no recorded run. To run it: `{command}`."
    return f"{title}\n\n{section(record, folder)}\n\n{_provenance(record)}"


def _provenance(record: Record) -> str:
    machine = record["machine"]
    versions = ", ".join(f"{name} {machine['versions'][name]}" for name in ("cubicflow", "torch"))
    where = name_of(machine, threads=True)
    return f"`{record['command']}`, {record['finished'][:10]}, on {where}; {versions}."


def _pictures(folder: Path, names: list[str]) -> str:
    return "\n".join(
        f"![{name.removesuffix('.png')}]({folder.name}/{name})"
        if (folder / name).exists()
        else f"{folder.name}/{name} is missing."
        for name in names
    )


def _remarks(record: Record) -> str:
    return f"\n\nRemarks on the pictures: {record['remarks']}" if record["remarks"] else ""


def _figure_1(record: Record, folder: Path) -> str:
    found = record["results"]
    return (
        f"A cubic spline with {record['settings']['num_bins']} bins and random params, and its derivative. All slopes "
        f"lie between {found['smallest_slope']:.3g} and {found['largest_slope']:.3g}, so none is negative. Across a "
        f"knot, the derivative changes by at most {found['largest_relative_jump_of_slope']:.1g} of its largest value, "
        f"over a step of {2 * found['one_sided_step']:.0e}. By the trapezoidal rule, the derivative integrates to "
        f"{found['integral_of_slope']:.6f}. The inverse returns every point with an error of at most "
        f"{found['largest_round_trip_error']:.1g}.\n\n" + _pictures(folder, ["figure-1.png"])
    )


def _figure_2(record: Record, folder: Path) -> str:
    settings, densities = record["settings"], record["results"]["densities"]
    flow = settings["flow"]
    private = [row["density"] for row in densities if row["private"]]
    hidden = (
        [f"{', '.join(private)} is not shown, because the copyright of the photograph is unclear."] if private else []
    )
    hidden += [f"Not shown: {note}." for note in record["notes"]]
    parameters = max(row["parameters"] for row in densities)
    goals = [
        f"The gap of the Gaussians is {row['gap']:.3f}, {_goal(row['reached'], row['aim_met'])}; the goal is "
        f"{settings['gap_reach']}, the aim {settings['gap_aim']}."
        for row in densities
        if row["density"] == GAUSSIANS
    ]
    flow_and_points = (
        f"The flow has {flow['num_layers']} coupling layers with K = {flow['num_bins']}, no linear layers, a uniform "
        f"base, and {parameters:,} parameters; the bound is {settings['most_parameters']:,}. It is trained on "
        f"{settings['points']:,} points of each density."
    )
    panels = f"From left to right: {', '.join(record['results']['panels'])}."
    parts = [
        " ".join([flow_and_points, *goals, panels, *hidden]),
        _pictures(folder, [row["picture"] for row in densities if not row["private"]]),
        density_table(densities).strip(),
        how_to_read(settings) if folder.name == record["experiment"] else "",  # the paper's model has the same columns
    ]
    return "\n\n".join(filter(None, parts)) + _remarks(record)


def _table_1(record: Record, folder: Path) -> str:
    return (
        f"{main_table(record['results'])}\n\n[Every score]({folder.name}/table-1.md): how scores on redrawn rows are "
        "carried over to the published rows, ablations, other layers, other packages, mixtures, and every command."
    )


def _figure_3(record: Record, folder: Path) -> str:
    found = record["results"]
    return (
        f"Fashion-MNIST, {found['parameters']:,} parameters, {found['steps']:,} steps: **{found['bits_per_dim']:.3f} ± "
        f"{found['error']:.3f} bits per dimension** on {found['test_images']:,} test images (two standard errors), "
        f"{_goal(found['reached'], found['aim_met'])}. The goal is {record['settings']['bits_reach']}, the aim below "
        f"{record['settings']['bits_aim']}. {found['bound']} The noise is drawn {found['noise_draws']} times for each "
        "image. Training images, samples at three temperatures, and the training curve:\n\n"
        + _pictures(folder, ["figure-3.png", "figure-3-training.png"])
        + _remarks(record)
    )


def _appendix(record: Record, folder: Path) -> str:
    three, quantiles = record["results"]["three_bins"], record["results"]["quantiles"]
    by_bins = list(quantiles["quadratic_smallest_slope_by_bins"].values())
    return (
        "A quadratic spline through given knots has one degree of freedom, its slope at the first knot. The spline is "
        "monotone only if no slope that follows from the first is negative. Through three bins, flat, steep, flat, the "
        f"best quadratic spline needs a slope of {three['quadratic_smallest_slope']:.2f} and falls on "
        f"{100 * three['quadratic_decreasing_share']:.0f} % of the interval. The cubic spline misses no knot by more "
        f"than {three['cubic_largest_miss_of_a_knot']:.1g} and never falls. Through "
        f"{record['settings']['num_bins'] - 1} quantiles of a mixture of two normals, the best quadratic spline needs "
        f"a slope of {quantiles['quadratic_smallest_slope']:.3f}. Its largest error against the true cdf is "
        f"{quantiles['quadratic_largest_error']:.3f}, that of the cubic spline "
        f"{quantiles['cubic_largest_error']:.3f}. For {sum(s < 0 for s in by_bins)} of the {len(by_bins)} numbers of "
        f"bins from 2 to {record['settings']['most_bins']}, no quadratic spline through the quantiles is monotone. The "
        "cubic spline has one parameter more:\n\n"
        + (folder / "appendix.md").read_text(encoding="utf-8").strip()
        + "\n\n"
        + _pictures(folder, ["appendix.png"])
    )


def _goal(reached: bool, aim_met: bool) -> str:
    return "which meets the aim" if aim_met else "which meets the goal, not the aim" if reached else "**a goal missed**"


SECTIONS = {  # title, and a function of a record and its folder that returns the text
    "figure-1": ("Figure 1: a random cubic spline", _figure_1),
    "figure-2": ("Figure 2: densities on the plane", _figure_2),
    "table-1": ("Table 1: density estimation", _table_1),
    "figure-3": ("Figure 3: images", _figure_3),
    "appendix": ("Appendix: cubic and quadratic splines", _appendix),
}
