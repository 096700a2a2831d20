"""Flows inside other programs for posteriors: :mod:`cubicflow.clients.sbi` and :mod:`cubicflow.clients.nessai`.

Each client is a module of its own, which imports the program that it serves: ``import cubicflow`` imports none of them.
Where the program is absent or too old, importing the client says in one line what to install. Pyro needs no client:
``flow.distribution(...)`` is one of Pyro's distributions once Pyro is imported.
"""
