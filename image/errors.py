"""What can go wrong when an image is made."""


class CannotMake(Exception):
    """The image cannot be made; the text says why and what to do."""
