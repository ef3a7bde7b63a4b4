"""`python -m native.layout [--check]`."""

import sys

from native.layout import generated_layout

stale = [
    path
    for path, text in generated_layout.files().items()
    if not path.exists() or path.read_text() != text
]
if "--check" in sys.argv[1:]:
    for path in stale:
        print(f"{path.relative_to(generated_layout.ROOT)} is stale: run `python -m native.layout`")
    sys.exit(bool(stale))
for path, text in generated_layout.files().items():
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
