"""What a user did wrong."""


class UserError(ValueError):
    """Something that the caller can mend: the message says what was expected, what was found and what to do.

    The command shows it as one line. Whatever else is raised is a bug in elmokit, but for what the machine refused
    (OSError).
    """
