"""Looking inside a trained ViT: attention maps, rollout, features, occlusion, localization."""

from vit_helpers.inspection.attention_maps import (
    attention_distance,
    attention_map,
    class_tokens,
    entropy,
)
from vit_helpers.inspection.features import filters, occlusion, position_similarity, token_layers
from vit_helpers.inspection.rollout import attention_gradients, gradient_rollout, rollout

__all__ = [
    "attention_distance",
    "attention_gradients",
    "attention_map",
    "class_tokens",
    "entropy",
    "filters",
    "gradient_rollout",
    "occlusion",
    "position_similarity",
    "rollout",
    "token_layers",
]
