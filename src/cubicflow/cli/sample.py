"""``cubicflow sample RUN -n N -o OUT``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from cubicflow.advice import Advice
from cubicflow.cli import shared
from cubicflow.cli.arguments import conditions
from cubicflow.cli.terminal import say


def sample(
    run: shared.RunFolder,
    number: Annotated[int, typer.Option("--number", "-n", help="Number of rows.", min=1)],
    output: shared.Output,
    given: Annotated[
        list[str] | None,
        typer.Option(
            help="Condition on a column: col=word, col>5, 'col in a,b', 'col in 1..9', 'col is missing'. Repeat for "
            "several. For a flow: col=value, for each context column."
        ),
    ] = None,
    constraint: Annotated[
        list[str] | None,
        typer.Option(help="Constraint on every row, in addition to those of the fit: 'start <= end', 'a + b = c'."),
    ] = None,
    complete: Annotated[bool, typer.Option("--complete", help="Draw rows without missing values.")] = False,
    temperature: Annotated[
        float, typer.Option(help="Temperature of a flow: below 1 gives more typical rows, above 1 more extreme rows.")
    ] = 1.0,
    seed: Annotated[int | None, typer.Option(help="Seed of the rows.", min=0, max=2**63 - 1)] = None,
    overwrite: shared.Overwrite = False,
    protect_formulas: shared.ProtectFormulas = False,
    device: shared.Device = None,
    engine: shared.Engine = None,
    address: shared.Address = None,
    workers: shared.Workers = None,
    block_rows: shared.BlockRows = None,
    resume: shared.Resume = False,
) -> None:
    """Draw new rows with the columns and types of the fitted table.

    Example: cubicflow sample run -n 1000 -o samples.csv

    Example: cubicflow sample run -n 1000 -o dear.csv --given cut=Ideal --given "price>5000" --given "color in D,E"
    """
    from cubicflow.tables import FittedTable
    from cubicflow.tables.run import CsvStyle, check_output, write_rows

    if not 0 < temperature < float("inf"):
        raise ValueError(f"--temperature must be a number above 0, got {temperature:g}")
    blockwise = shared.job_options(engine, address=address, workers=workers, block_rows=block_rows, resume=resume)
    if engine is None or protect_formulas:
        shared.check_protection(output, protect_formulas=protect_formulas)
    if engine is None:
        check_output(output, overwrite=overwrite)
    fitted = FittedTable.load(run, device if engine is None else "cpu")
    required = conditions("--given", given or [], [column.name for column in fitted.schema.columns])
    options: dict[str, Any] = {"complete": complete, "constraints": constraint or []}
    if engine is not None:
        from cubicflow.clusters import sample_files

        options |= {"given": required, "temperature": temperature, "seed": seed, "overwrite": overwrite}
        options |= {"device": device, "progress": True}
        shared.say_job(sample_files(fitted, number, output, **options, **blockwise))
        return
    options["say"] = _say
    samples = fitted.sample_batches(number, required, temperature, seed, **options)
    style = CsvStyle(fitted.decimals(required), fitted.reading.notations, protect_formulas)
    write_rows(output, samples, style, overwrite=overwrite)


def _say(text: str) -> None:
    say(Advice.after("note: ", text), err=True)
