"""What made `vit_helpers/results/`, each as `python -m tools.experiments.NAME`; the tables there name their commands."""
