"""``partage demo``: programs that share cards, and a verdict on what was seen.

::

    command     the command: what it refuses, and what it prints
    steps       the story, step by step
    roles       the programs that take part, and what each asks for
    launcher    their processes
    program     what each of them runs; it imports nothing of Partage
    observer    the ledger, sampled all the while
    verdict     which promises held
"""
