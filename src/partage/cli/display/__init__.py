"""What commands print: cells, tables and pages, text while waiting, and JSON."""
