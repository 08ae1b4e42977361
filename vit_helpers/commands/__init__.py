"""What `python -m vit_helpers` can do, a file a command: `add_arguments(parser)` and `run(args)` -> exit status."""
