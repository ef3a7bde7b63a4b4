"""The commands, a module or a folder each, named as they are typed."""
