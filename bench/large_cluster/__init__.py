"""Large clusters to measure on: their objects, what fills them, and what happens in them."""
