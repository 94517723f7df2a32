"""The one exception that stands for "the user can put this right"."""


class UsageError(Exception):
    """A mistake in the config, the command line or the surroundings.

    Its message is a single line that says what was wrong and what would be right; the command
    line prints it without a traceback.
    """

    def __init__(self, message: str):
        super().__init__(" ".join(message.split()))
