"""What a person asks for on one machine, in our words or in those of another system."""
