"""The kubelet's protocols: two descriptions, and what is generated from them.

The descriptions are ours, written from the kubelet's field tables: package, message and field
names and numbers are what counts on the wire. `python scripts/stubs.py` generates the rest, and
`make lint` says when that was forgotten. A description is registered under its path in the whole
process, so the path must be unlike anybody else's: plain ``api.proto`` would not do.

Only messages are generated. Of the services we use six methods, and a method is one line with its
types where it is served or called.
"""
