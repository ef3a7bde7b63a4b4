"""``partage run``: start a program with a share of a card.

::

    command         the command and its options
    program_hints   what the user probably meant, if what they named cannot be started
"""
