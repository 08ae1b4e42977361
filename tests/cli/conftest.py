"""Commands without the figures of `evaluate`, which few of their tests look at"""

import pytest


@pytest.fixture
def no_evaluation_drawn(monkeypatch):
    monkeypatch.setattr("vit_helpers.cli.evaluate.draw_counts", lambda *what: None)
    monkeypatch.setattr("vit_helpers.cli.evaluate.draw_mistakes", lambda *what: None)
