"""What is wrong in Slurm's files: files and facts in, findings out."""
