"""What went wrong, in words for the user. The CLI turns InputError into exit 2 and RunFailed into exit 1."""


class InputError(ValueError):
    """The input was wrong. The message names file, key or column, client, and the mend."""


class Unreadable(InputError):
    """A file that cannot be opened now and may be there again later: it is away, or a share is not mounted."""


class RunFailed(RuntimeError):
    """The job failed though the input was readable: a round without answers, a full disk."""
