"""The command line: one file for each command, no numerics, nothing heavy imported before it is needed."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; what is wrong with a command is one line on standard error and exit status 2."""
    try:
        import typer
    except ImportError:
        sys.exit("the command line needs some more packages: pip install 'cubicflow[cli]'")
    from cubicflow.cli import bench, compare, doctor, evaluate, fit, plot, reproduce, sample, score

    app = typer.Typer(
        name="cubicflow",
        help="Cubic-spline flows: densities of tables, exact log likelihoods, exact samples.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    app.command("fit")(fit.fit)
    app.command("evaluate")(evaluate.evaluate)
    app.command("compare")(compare.compare)
    app.command("score")(score.score)
    app.command("sample")(sample.sample)
    app.command("plot")(plot.plot)
    app.command("reproduce")(reproduce.reproduce)
    app.command("bench")(bench.bench)
    app.command("doctor")(doctor.doctor)
    app()
