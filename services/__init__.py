"""The three services. They share a schema and nothing else."""
