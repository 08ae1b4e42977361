"""Trainings on folders: no new photo is shared by what chooses and what is reported."""

import pytest

from tools.experiments import folder_runs

pytestmark = pytest.mark.dev


def test_what_chooses_shares_no_new_photo_with_what_is_reported(few_photos):
    case = folder_runs.CASES["a moment"]
    parts = [
        {image.numpy().tobytes() for image in data.test.pixels}
        for part in (0, 1)
        for _, data in [folder_runs.settings_and_data(case, "cifar10", seed=0, part=part)]
    ]
    assert len(parts[0]) == len(parts[1]) == 150 and not parts[0] & parts[1]
