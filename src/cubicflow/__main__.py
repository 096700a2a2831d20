"""``python -m cubicflow``: the command line."""

from cubicflow.cli import main

main()
