"""What somebody else made is read, never run: weights, folders, names of hubs, checkpoints."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from peers import transformers
from PIL import Image

from vit_helpers.pretrained import load_pretrained

ROOT = Path(__file__).parents[2]
MARKER = "the_code_ran.txt"
CODE = f"""
from pathlib import Path

Path(__file__).with_name("{MARKER}").write_text("")
Path("{MARKER}").write_text("")  # transformers runs a copy: this is in the working folder

from transformers import PretrainedConfig, PreTrainedModel, ViTImageProcessor


class OwnConfig(PretrainedConfig):
    model_type = "own"


class OwnModel(PreTrainedModel):
    config_class = OwnConfig


class OwnProcessor(ViTImageProcessor):
    pass
"""
CONFIG = {"AutoConfig": "own.OwnConfig", "AutoModel": "own.OwnModel"}
PROCESSOR = {"auto_map": {"AutoImageProcessor": "own.OwnProcessor"}}
TINY = {
    "image_size": 32,
    "patch_size": 8,
    "hidden_size": 24,
    "num_hidden_layers": 1,
    "num_attention_heads": 3,
    "intermediate_size": 48,
}


def change(path, **values):
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


@pytest.fixture
def folder(tmp_path):
    """A small ViT as Hugging Face stores it, with Python code that leaves a marker if it runs"""
    folder = tmp_path / "model"
    transformers.ViTModel(transformers.ViTConfig(**TINY)).save_pretrained(folder)
    processor = transformers.ViTImageProcessor(size={"height": 32, "width": 32})
    processor.save_pretrained(folder)
    (folder / "own.py").write_text(CODE)
    return folder


def predict(folder):
    """The finished `predict` with weights of this folder, where somebody answers y to everything"""
    Image.new("RGB", (32, 32)).save(folder.parent / "picture.png")
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "HF_HOME": str(folder.parent / "cache"),  # where transformers copies the code to
        "HF_HUB_OFFLINE": "1",
    }
    words = ["-m", "vit_helpers", "predict", "picture.png", "--weights", str(folder)]
    options = {"cwd": folder.parent, "env": environment, "input": "y\n" * 9}
    done = subprocess.run([sys.executable, *words], **options, capture_output=True, text=True)
    assert not [*folder.parent.rglob(MARKER)], "code of the folder ran"
    assert "[y/N]" not in done.stdout
    return done


@pytest.mark.peers
def test_a_folder_whose_config_names_code_is_refused_in_one_line(folder):
    change(folder / "config.json", model_type="own", auto_map=CONFIG)
    done = predict(folder)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error: {folder} contains code of its own")
    assert "model_type vit" in line


@pytest.mark.peers
def test_a_folder_whose_preprocessing_names_code_is_refused_in_one_line(folder):
    change(folder / "preprocessor_config.json", image_processor_type="OwnProcessor", **PROCESSOR)
    done = predict(folder)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error: {folder} contains code of its own")


@pytest.mark.peers
def test_a_vit_that_also_names_code_is_read_without_it(folder):
    change(folder / "config.json", auto_map=CONFIG)
    assert load_pretrained(folder).model.config.embed_dim == 24
    assert not [*folder.parent.rglob(MARKER)]


@pytest.mark.peers
def test_a_config_does_not_choose_a_kernel_to_be_fetched(folder):
    change(folder / "config.json", attn_implementation="somebody/kernel")
    assert load_pretrained(folder).model.config.embed_dim == 24


@pytest.mark.peers
@pytest.mark.parametrize("name", ["hf-hub:somebody/model", "local-dir:/tmp", "hf_hub:a/b@main"])
def test_timm_loads_only_what_it_lists(name):
    with pytest.raises(ValueError, match=f"timm .*{name}"):
        load_pretrained(f"timm:{name}")


class Leave:
    """Leaves a file where it is unpickled"""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.mark.parametrize("ending", [".pth", ".pt", ".bin", ".ckpt", ".tar"])
def test_pickled_objects_are_not_loaded(tmp_path, ending):
    torch.save({"state_dict": {}, "args": Leave(tmp_path / MARKER)}, tmp_path / f"model{ending}")
    with pytest.raises(ValueError, match="could run code"):
        load_pretrained(tmp_path / f"model{ending}")
    assert not (tmp_path / MARKER).exists()


def test_pickled_arrays_are_not_loaded(tmp_path):
    array = np.array([Leave(tmp_path / MARKER)], dtype=object)
    np.savez(tmp_path / "model.npz", kernel=array)
    with pytest.raises(ValueError, match="allow_pickle=False"):
        load_pretrained(tmp_path / "model.npz")
    assert not (tmp_path / MARKER).exists()


@pytest.mark.peers
def test_pickled_weights_in_a_folder_of_hugging_face_are_not_loaded(folder):
    (folder / "model.safetensors").unlink()
    torch.save({"cls_token": Leave(folder / MARKER)}, folder / "pytorch_model.bin")
    with pytest.raises(OSError, match="could not get Hugging Face's"):
        load_pretrained(folder)
    assert not (folder / MARKER).exists()


# In the source: who loads says that no code runs

SAFE = {  # what reads files, and the argument that keeps it from running their code
    "torch.load": ("weights_only", True),
    "np.load": ("allow_pickle", False),
    "AutoConfig.from_pretrained": ("trust_remote_code", False),
    "AutoImageProcessor.from_pretrained": ("trust_remote_code", False),
    "weights.get_state_dict": ("weights_only", True),
}
NEVER = {
    "pickle.load",
    "pickle.loads",
    "yaml.load",
    "joblib.load",
    "torch.hub.load",
    "eval",
    "exec",
}
NEVER |= {"AutoModel.from_pretrained", "load_dataset", "dill.load", "marshal.loads"}


def find_unsafe(source):
    """Calls in this source that read files of others and may run code that is in them"""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            values = {word.arg: getattr(word.value, "value", None) for word in node.keywords}
            argument, safe = SAFE.get(name, (None, None))
            if name in NEVER or (name in SAFE and values.get(argument) is not safe):
                yield ast.unparse(node)


@pytest.mark.parametrize(
    ("source", "unsafe"),
    [
        ("torch.load(path)", True),
        ("torch.load(path, weights_only=False)", True),
        ("torch.load(path, weights_only=True)", False),
        ("np.load(file, allow_pickle=True)", True),
        ("AutoConfig.from_pretrained(name)", True),
        ("pickle.loads(content)", True),
        ("model.eval(); re.compile(text)", False),
    ],
)
def test_unsafe_calls_are_found(source, unsafe):
    assert bool([*find_unsafe(source)]) is unsafe


def test_nothing_here_loads_files_in_a_way_that_may_run_code():
    paths = [path for name in ("vit_helpers", "tools") for path in (ROOT / name).rglob("*.py")]
    unsafe = {path.name: [*find_unsafe(path.read_text(encoding="utf-8"))] for path in paths}
    assert len(paths) > 100 and not {name: calls for name, calls in unsafe.items() if calls}
