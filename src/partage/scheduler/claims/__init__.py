"""Claims that bind like volumes: their life, and the writes that it takes."""
