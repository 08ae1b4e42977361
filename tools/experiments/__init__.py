"""What made the tables in `vit_helpers/results/`, as `python -m tools.experiments.NAME`."""
