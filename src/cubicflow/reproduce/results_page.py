"""The page of results: what the paper's third section says, with our numbers. Every number on it is read from a record,
so the page is written by a command and never by hand."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cubicflow.atomic_files import write_atomically
from cubicflow.reproduce.claims import claims_table
from cubicflow.reproduce.experiment import EXPERIMENTS, read_json
from cubicflow.reproduce.figure_2 import GAUSSIANS
from cubicflow.reproduce.figure_2_report import what_limits
from cubicflow.reproduce.hardware import name_of
from cubicflow.reproduce.table_1_report import table_markdown

PAGE_FILE = "README.md"
PANELS_ONCE = ("data", "model density", "model samples")  # of figure 2, in records that do not name them
Record = Mapping[str, Any]

HEAD = """# The paper, rerun

*Cubic-Spline Flows* (Durkan, Bekasov, Murray and Papamakarios, 2019), figure by figure. This page is written by
`cubicflow reproduce page -o results` from the records beside it (`NAME/NAME.json`: numbers, settings, seed, hardware,
versions, time). Quick runs are no results and do not appear. Every setting stands in a recipe,
[`src/cubicflow/reproduce/recipes`](../src/cubicflow/reproduce/recipes), and what other packages ask for beside it in
`benchmarks/peer_densities.py`. The data folder is the one that `CUBICFLOW_DATA` names. Each command goes on where an
earlier call of it stopped; with `--seconds` a call ends when told, and where it ends changes no result.
`benchmarks/reproduce_gpu.sh` runs several of them side by side on one GPU."""


def write_page(folder: Path) -> Path:
    """Write the page of the records in ``folder``, each in a folder of its experiment's name."""
    records = {name: record for name in EXPERIMENTS if (record := read_record(folder / name, name)) is not None}
    parts = [HEAD, _not_rerun(records)]
    for name, (title, section) in SECTIONS.items():
        record = records.get(name)
        text = section(record, folder / name) if record else f"Not yet run: `cubicflow reproduce {name}`."
        parts.append(f"## {title}\n\n{text}" + (f"\n\n{_provenance(record)}" if record else ""))
    parts.append("## The paper's claims, one by one\n\n" + claims_table(records))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / PAGE_FILE
    if path.exists() and not path.read_text(encoding="utf-8", errors="replace").startswith(HEAD.splitlines()[0]):
        raise ValueError(f"{path} is not a page of results, and would be lost; choose another folder with -o")
    write_atomically(path, ("\n\n".join(parts) + "\n").encode())
    return path


def read_record(folder: Path, name: str) -> Record | None:
    """Return the record of an experiment; None if there is none, or that of a quick run. ``remarks`` is what somebody wrote
    of the pictures into remarks.md beside it."""
    path, remarks = folder / f"{name}.json", folder / "remarks.md"
    if not path.exists():
        return None
    record = read_json(path)
    if not {"quick", "results", "settings", "machine", "command", "finished"} <= record.keys():
        raise ValueError(f"{path} is damaged; run again: cubicflow reproduce {name} -o {folder}")
    said = " ".join(remarks.read_text(encoding="utf-8").split()) if remarks.exists() else ""
    return None if record["quick"] else {**record, "remarks": said}


def _not_rerun(records: Mapping[str, Record]) -> str:
    lines = [f"- {title}: not yet run." for name, (title, _) in SECTIONS.items() if name not in records]
    if "table-1" in records:
        for dataset, about in records["table-1"]["results"]["datasets"].items():
            if about["left_out"]:
                lines.append(f"- Table 1, {dataset.upper()}: {about['left_out'].rstrip('.')}.")
            elif about["note"] is None:
                lines.append(f"- Table 1, {dataset.upper()}: not yet run.")
            elif about["provenance"] != "whole":
                lines.append(f"- Table 1, {dataset.upper()} is {about['provenance']}. {about['note']}")
    lines += [f"- Figure 2: {note}." for note in records.get("figure-2", {}).get("notes", [])]
    return "## What could not be rerun\n\n" + ("\n".join(lines) if lines else "Nothing: all of it was.")


def _provenance(record: Record) -> str:
    machine = record["machine"]
    versions = ", ".join(f"{name} {machine['versions'][name]}" for name in ("cubicflow", "torch"))
    where = name_of(machine, threads=True)
    return f"`{record['command']}`, {record['finished'][:10]}, on {where}; {versions}."


def _pictures(folder: Path, names: list[str]) -> str:
    return "\n".join(
        f"![{name.removesuffix('.png')}]({folder.name}/{name})"
        if (folder / name).exists()
        else f"{folder.name}/{name} is not here."
        for name in names
    )


def _looked_at(record: Record) -> str:
    return f"\n\nLooked at: {record['remarks']}" if record["remarks"] else ""


def _figure_1(record: Record, folder: Path) -> str:
    found = record["results"]
    return (
        f"A cubic spline with {record['settings']['num_bins']} bins and random params, and its derivative. Slopes lie "
        f"between {found['smallest_slope']:.3g} and {found['largest_slope']:.3g}, none is negative. From one side of a "
        f"knot to the other the derivative changes by at most {found['largest_relative_jump_of_slope']:.1g} of its "
        f"largest value, over a step of {2 * found['one_sided_step']:.0e}. It integrates to "
        f"{found['integral_of_slope']:.6f} by the trapezoidal rule, and the inverse returns every point to "
        f"{found['largest_round_trip_error']:.1g}.\n\n" + _pictures(folder, ["figure-1.png"])
    )


def _figure_2(record: Record, folder: Path) -> str:
    settings, densities = record["settings"], record["results"]["densities"]
    flow = settings["flow"]
    gaps = " ".join(
        f"{row['density']}: {row['gap']:.3f} ± {row['gap_error']:.3f} nats below the true density on "
        f"{settings['test_points']:,} unseen points"
        + (f", {_goal(row['reached'], row['aim_met'])}." if row["density"] == GAUSSIANS else ".")
        for row in densities
    )
    private = [row["density"] for row in densities if row["private"]]
    hidden = f" {', '.join(private)} is not shown: who may copy the photograph is not known." if private else ""
    parameters = max(row["parameters"] for row in densities)
    panels = record["results"].get("panels", PANELS_ONCE)
    limits = what_limits(record)
    return (
        f"{flow['num_layers']} coupling layers with K = {flow['num_bins']}, no linear layers, a uniform base; "
        f"{settings['points']:,} points of each density; {parameters:,} parameters, against a bound of "
        f"{settings['most_parameters']:,}. For the Gaussians the goal is a gap of {settings['gap_reach']}, the "
        f"aim {settings['gap_aim']}. {gaps} From left to right: {', '.join(panels)}.{hidden}\n\n"
        + _pictures(folder, [row["picture"] for row in densities if not row["private"]])
        + _looked_at(record)
        + (f"\n\n{limits}" if limits else "")
        + f"\n\n{(folder / 'figure-2.md').read_text(encoding='utf-8').strip()}"
    )


def _table_1(record: Record, folder: Path) -> str:  # noqa: ARG001 - as the other sections
    summary = record["results"]
    commands = sorted({command for row in summary["rows"] for command in row["commands"]})
    hardware = "; ".join(sorted({name for row in summary["rows"] for name in row["hardware"]}))
    ran = "\n".join(f"    {command}" for command in commands)
    return table_markdown(summary).strip() + (f"\n\nThe cells were run on {hardware} by\n\n{ran}" if commands else "")


def _figure_3(record: Record, folder: Path) -> str:
    found = record["results"]
    return (
        f"Fashion-MNIST, {found['parameters']:,} parameters, {found['steps']:,} steps: **{found['bits_per_dim']:.3f} ± "
        f"{found['error']:.3f} bits per dimension** on {found['test_images']:,} test images (two standard errors), "
        f"{_goal(found['reached'], found['aim_met'])}. The goal is {record['settings']['bits_reach']}, the aim below "
        f"{record['settings']['bits_aim']}. {found['bound']} The noise is drawn {found['noise_draws']} times for each "
        "image. Samples at three temperatures, and the course of the training:\n\n"
        + _pictures(folder, ["figure-3.png", "figure-3-training.png"])
        + _looked_at(record)
    )


def _appendix(record: Record, folder: Path) -> str:
    three, quantiles = record["results"]["three_bins"], record["results"]["quantiles"]
    by_bins = list(quantiles["quadratic_smallest_slope_by_bins"].values())
    return (
        "A quadratic spline through given knots has one freedom left, its slope at the first; it is monotone only if "
        "all the slopes that follow from it are positive. Through three bins, flat, steep, flat, the best choice "
        f"needs a slope of {three['quadratic_smallest_slope']:.2f}, and the curve falls on "
        f"{100 * three['quadratic_decreasing_share']:.0f} % of the interval; the cubic misses no knot by more than "
        f"{three['cubic_largest_miss_of_a_knot']:.1g} and nowhere falls. Through "
        f"{record['settings']['num_bins'] - 1} quantiles of a mixture of two normals the best quadratic needs "
        f"{quantiles['quadratic_smallest_slope']:.3f} and is {quantiles['quadratic_largest_error']:.3f} off the true "
        f"cdf at worst, the cubic {quantiles['cubic_largest_error']:.3f}. Of the numbers of bins from 2 to "
        f"{record['settings']['most_bins']}, {sum(s < 0 for s in by_bins)} of {len(by_bins)} leave the quadratic no "
        "monotone way through the quantiles. The cubic pays with one parameter more:\n\n"
        + (folder / "appendix.md").read_text(encoding="utf-8").strip()
        + "\n\n"
        + _pictures(folder, ["appendix.png"])
    )


def _goal(reached: bool, aim_met: bool) -> str:
    return "which meets the aim" if aim_met else "which meets the goal, not the aim" if reached else "**a goal missed**"


SECTIONS = {  # title, and what makes the text of a record and the folder it is in
    "figure-1": ("Figure 1: a random cubic spline", _figure_1),
    "figure-2": ("Figure 2: densities on the plane", _figure_2),
    "table-1": ("Table 1: density estimation", _table_1),
    "figure-3": ("Figure 3: images", _figure_3),
    "appendix": ("Appendix: cubic and quadratic splines", _appendix),
}
