"""``cubicflow sample RUN -n N -o OUT``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from cubicflow.cli.arguments import conditions, pairs
from cubicflow.cli.clear_errors import clear_errors
from cubicflow.cli.engine_options import Address, BlockRows, Engine, Resume, Workers, of_engine, say_job
from cubicflow.cli.terminal import say
from cubicflow.cli.writing import ProtectFormulas, check_protection


def sample(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    number: Annotated[int, typer.Option("--number", "-n", help="How many rows.", min=1)],
    output: Annotated[
        str,
        typer.Option("--output", "-o", help=".csv, .parquet or .npy; - for standard output; of an engine a folder."),
    ],
    given: Annotated[
        list[str] | None,
        typer.Option(
            help="What every row meets: col=word, col>5, 'col in a,b', 'col in 1..9', 'col is missing'. Of a flow "
            "col=value of its context columns."
        ),
    ] = None,
    constraint: Annotated[
        list[str] | None,
        typer.Option(help="What every row keeps, beside those of the fit: 'start <= end', 'a + b = c'."),
    ] = None,
    complete: Annotated[bool, typer.Option("--complete", help="Draw rows without missing values.")] = False,
    temperature: Annotated[
        float, typer.Option(help="Of a flow: below 1 for more typical rows, above for wilder ones.")
    ] = 1.0,
    seed: Annotated[int | None, typer.Option(help="The same seed gives the same rows.", min=0, max=2**63 - 1)] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an output that exists.")] = False,
    protect_formulas: ProtectFormulas = False,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:N.")] = None,
    engine: Engine = None,
    address: Address = None,
    workers: Workers = None,
    block_rows: BlockRows = None,
    resume: Resume = False,
) -> None:
    """New rows with the columns, types and words of the fitted table.

    Example: cubicflow sample run -n 1000 -o samples.csv

    Example: cubicflow sample run -n 1000 -o dear.csv --given cut=Ideal --given "price>5000" --given "color in D,E"

    Example: cubicflow sample run -n 1000000000 -o rows --engine ray
    """
    with clear_errors():
        from cubicflow.tables import FittedTable
        from cubicflow.tables.output import check_output, write_rows

        if not 0 < temperature < float("inf"):
            raise ValueError(f"--temperature should be a positive number, got {temperature:g}")
        blockwise = of_engine(engine, address=address, workers=workers, block_rows=block_rows, resume=resume)
        if engine is None or protect_formulas:
            check_protection(output, protect_formulas=protect_formulas)
        if engine is None:
            check_output(output, overwrite=overwrite)
        fitted = FittedTable.load(run, device if engine is None else "cpu")
        told: dict[str, str] | list[str]
        if fitted.cells is None:
            told = pairs("--given", given or [], [column.name for column in fitted.schema.context])
        else:
            told = conditions("--given", given or [], [column.name for column in fitted.schema.columns])
        asked: dict[str, Any] = {"complete": complete, "constraints": constraint or []}
        if engine is not None:
            from cubicflow.clusters import sample_files

            asked |= {"given": told, "temperature": temperature, "seed": seed, "overwrite": overwrite}
            say_job(sample_files(fitted, number, output, device=device, **asked, **blockwise), None)
            return
        asked["say"] = _say
        samples = fitted.sample_batches(number, told, temperature, seed, **asked)
        how: dict[str, Any] = {"overwrite": overwrite, "protect_formulas": protect_formulas}
        write_rows(output, samples, fitted.decimals(told), formats=fitted.reading.formats, **how)


def _say(text: str) -> None:
    say(f"note: {text}", err=True)
