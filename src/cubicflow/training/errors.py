"""Errors of a training run, other than invalid arguments."""

from cubicflow.advice import AdvisedError


class TrainingError(AdvisedError, RuntimeError):
    """Training cannot start or continue. The message gives the reason and a remedy. Base class of the errors below.

    >>> issubclass(RunFolderError, TrainingError), issubclass(NonFiniteLossError, TrainingError)
    (True, True)
    """


class RunFolderError(TrainingError):
    """A run folder holds another run, is in use, is damaged, or cannot be written.

    >>> import tempfile, torch
    >>> import cubicflow as cf
    >>> flow, x = cf.flows.tabular(1, num_layers=1, hidden_features=8), torch.randn(200, 1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = cf.training.fit(flow, x, run=folder, steps=5, progress=False)
    ...     try:
    ...         cf.training.fit(flow, x, run=folder, steps=5, progress=False)
    ...     except cf.training.RunFolderError as error:
    ...         print("with resume=True or overwrite=True" in str(error))
    True
    """


def cannot_resume(reason: object) -> RunFolderError:
    """Return the error for a run whose files are damaged, or do not fit."""
    return RunFolderError(f"cannot resume: {reason}; start over", overwrite=True)


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
    """Ctrl-C, SIGTERM or ``stop`` ended the run after saving it. The message says how to resume.

    The class derives from KeyboardInterrupt, so that ``except Exception`` does not catch it:

    >>> issubclass(TrainingInterrupted, KeyboardInterrupt), issubclass(TrainingInterrupted, Exception)
    (True, False)
    """
