"""Dialects: the request languages people already write, each in one module.

A dialect is one family of names: resources, annotations, labels and environment. It turns a pod
into a neutral demand, and a grant back into the annotations and the environment that the family's
own tools expect. Code outside this package does not depend on the words that a user wrote.

:mod:`partage.dialects.registry` is the way in, and :mod:`partage.dialects.bound_pods` for pods that
have their cards; docs/dialects.md shows every family with examples.
"""
