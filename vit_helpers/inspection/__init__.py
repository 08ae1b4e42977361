"""Looking inside a trained ViT: attention maps, rollout, Grad-CAM, features, occlusion, scores."""

from vit_helpers.inspection.attention_maps import (
    attention_distance,
    attention_map,
    entropy,
    prefix_tokens,
    readout_map,
    reads_class_token,
)
from vit_helpers.inspection.deletion import cover_largest, survival
from vit_helpers.inspection.features import (
    filters,
    occlusion,
    position_similarity,
    principal_components,
    token_layers,
)
from vit_helpers.inspection.grad_cam import (
    grad_cam,
    integrated_gradients,
    layer_cam,
    layer_gradients,
    pixel_gradients,
)
from vit_helpers.inspection.rollout import attention_gradients, gradient_rollout, rollout

__all__ = [
    "attention_distance",
    "attention_gradients",
    "attention_map",
    "cover_largest",
    "entropy",
    "filters",
    "grad_cam",
    "gradient_rollout",
    "integrated_gradients",
    "layer_cam",
    "layer_gradients",
    "occlusion",
    "pixel_gradients",
    "position_similarity",
    "prefix_tokens",
    "principal_components",
    "readout_map",
    "reads_class_token",
    "rollout",
    "survival",
    "token_layers",
]
