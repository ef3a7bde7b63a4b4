"""The container image of Partage: made from Debian packages and wheels, without a container daemon.

`python -m image` (`make image`) writes it; the tests' real nodes run what it makes. What is decided
here is pure: packages become `files`, these become `layers`, and `manifests` and `sbom` describe
them. What fetches, compiles and writes is apart: `debian_packages`, `python_packages`,
`partage_wheel`, `bytecode`, `layout`; `builds` joins both, and keeps what is the same next time.
"""
