"""What keeps a process inside its Share: levels, limits, and reading back what is used."""
