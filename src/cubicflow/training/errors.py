"""What can go wrong in a run, other than a wrong argument."""


class TrainingError(RuntimeError):
    """Training cannot begin or go on; the message says why and what to do. The errors below are kinds of it.

    >>> issubclass(RunFolderError, TrainingError), issubclass(NonFiniteLossError, TrainingError)
    (True, True)
    """


class RunFolderError(TrainingError):
    """A run folder that is taken, in use, damaged, of another run, or cannot be written.

    >>> import tempfile, torch
    >>> import cubicflow as cf
    >>> flow, x = cf.flows.tabular(1, num_layers=1, hidden_features=8), torch.randn(200, 1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = cf.training.fit(flow, x, run=folder, steps=5, progress=False)
    ...     try:
    ...         cf.training.fit(flow, x, run=folder, steps=5, progress=False)
    ...     except cf.training.RunFolderError as error:
    ...         print("continue it with resume" in str(error))
    True
    """


class NonFiniteLossError(TrainingError):
    """The loss or its gradient became NaN or infinite.

    >>> import torch
    >>> import cubicflow as cf
    >>> def broken(flow, batch):
    ...     return flow.log_prob(batch.x) * torch.nan
    >>> try:
    ...     cf.training.fit(cf.flows.tabular(1), torch.randn(200, 1), loss=broken, steps=5, progress=False)
    ... except cf.training.NonFiniteLossError as error:
    ...     print(str(error).split(".")[0])
    the loss of step 0 is not finite
    """


class TrainingInterrupted(KeyboardInterrupt):
    """Ctrl-C, SIGTERM or ``stop`` ended the run after saving it; the message says how to resume.

    It is a KeyboardInterrupt, so that a script that does not know it ends as any other does:

    >>> issubclass(TrainingInterrupted, KeyboardInterrupt), issubclass(TrainingInterrupted, Exception)
    (True, False)
    """
