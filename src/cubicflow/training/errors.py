"""What can go wrong in a run, other than a wrong argument."""


class TrainingError(RuntimeError):
    """Training cannot begin or go on; the message says why and what to do."""


class RunFolderError(TrainingError):
    """A run folder that is taken, in use, damaged, of another run, or cannot be written."""


class NonFiniteLossError(TrainingError):
    """The loss or its gradient became NaN or infinite."""


class TrainingInterrupted(KeyboardInterrupt):
    """Ctrl-C or SIGTERM ended the run after saving it; the message says how to resume."""
