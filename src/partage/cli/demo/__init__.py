"""``partage demo``: programs that share cards, and a judgement of what was seen.

::

    command     the command: what it refuses, and what it prints
    steps       the story
    roles       who takes part
    starting    their processes
    program     what each of them runs; it imports nothing of Partage
    watching    the ledger, looked at all the while
    judging     which promises held
"""
