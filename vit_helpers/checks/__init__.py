"""Checks of the exercises.

Each takes a learner's answer, prints a line for each idea, never raises, and returns a bool.
"""
