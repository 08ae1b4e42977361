"""A whole Vision Transformer in one file, microvit.py, which imports only math and random."""
