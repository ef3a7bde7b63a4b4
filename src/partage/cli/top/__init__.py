"""``partage top``: a live table. ``partage ps`` prints the same pages, once.

::

    command     the command
    sampling    where the numbers come from: an agent (``fetching``), fences (``folder``), or here
    looks       one moment, and what happened since the moment before
    rows        an agent's report as a page; a machine's is made in :mod:`partage.cli.ps_rows`
    grid        cells, and how a value becomes one
    pages       tables of cells, in order and filtered
    history     the last minute of each card, as a cell more
    drawing     a page as text: into a pipe (``printing``), or for a terminal
    frames      what of it the terminal has room for
    screen      the loop: draw, wait, obey
    terminals   raw mode, keys and sizes; ``keyboard`` decodes
    steering    what each key means
    signals     ending a program, after a question; ``members`` says who belongs to it
"""
