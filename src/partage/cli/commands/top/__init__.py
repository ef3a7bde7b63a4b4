"""``partage top``: a live table; ``partage ps`` prints the same pages once.

::

    command          the command and its options
    screen           the loop: draw, wait for a key or a second, obey
    frames           the part of a page that fits on the terminal
    history          the last samples of each card, as one more column
    keyboard         bytes of a terminal as keys
    key_actions      what each key does
    terminals        raw mode, sizes, and giving the terminal back
    signals          ending a program, after a question
    signal_targets   the processes that belong to a program

Where the numbers come from is in :mod:`partage.cli.sources`; pages and tables, which ``ps`` prints,
too, are in :mod:`partage.cli.display`.
"""
