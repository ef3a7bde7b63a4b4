"""What can go wrong with a release."""


class CannotRelease(Exception):
    """It is not made, or not complete; the text says why and what to do."""


class Wrong(Exception):
    """Something that was made is not what it should be; the text says what."""


class LeftOut(Exception):
    """Something cannot be checked on this machine; the text says why."""
