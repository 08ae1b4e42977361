"""Checks of the exercises: each takes a learner's answer, prints a line for each idea, never raises, and returns a bool."""
