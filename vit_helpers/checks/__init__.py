"""Marks for exercises: a check takes the learner's answer, prints a line an idea, never raises, and says True or False."""
