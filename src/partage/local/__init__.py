"""One machine: ``partage run``, its ledger, its queue, and what people look at.

No daemon runs. Every command opens the ledger, does its part, and goes; a program that was started
is held in the ledger by a lock that the kernel drops when its last process ends.
"""
