"""Flows for other programs that infer posteriors: :mod:`cubicflow.clients.sbi` and :mod:`cubicflow.clients.nessai`.

Each client is a separate module that imports its program. ``import cubicflow`` imports no client. If the program is
missing or too old, importing the client raises ImportError, which says what to install. Pyro needs no client:
``flow.distribution(...)`` returns a Pyro distribution if Pyro is imported.
"""
