"""The machine behind the checks; the exercises beside this folder are its data.

exercise.py: an exercise whose answer is a function; modules.py: one whose answer is a module class
choices.py : one whose answer is a choice for each of several letters
compare.py : whether a result is right; contract.py: what every good answer respects
proof.py   : which wrong answer of a table an answer is known to be
traces.py  : what an answer leaves behind; report.py: lines for the learner
learning.py: models, batches and optimizers, for answers that train
"""
