import pytest
import torch

from vit_helpers.data import load
from vit_helpers.parity import perturb
from vit_helpers.patches import patchify, unpatchify
from vit_helpers.pretrained.masked import MaskedAutoencoder, pretrain, random_masking
from vit_helpers.training import Recipe
from vit_helpers.vit import ViT, ViTConfig


@pytest.fixture
def vit():
    torch.manual_seed(0)
    vit = ViT(ViTConfig.from_name("mini/2", image_size=8, in_chans=1, num_classes=0))
    perturb(vit)
    return vit


@pytest.fixture
def images():
    return torch.randn(5, 1, 8, 8, generator=torch.Generator().manual_seed(1))


def test_every_patch_is_visible_or_hidden_and_each_image_has_its_own_split():
    visible, hidden = random_masking(50, 16, 0.75)
    assert visible.shape == (50, 4) and hidden.shape == (50, 12)
    both = torch.cat([visible, hidden], dim=1).sort(dim=1).values
    assert torch.equal(both, torch.arange(16).expand(50, -1))
    assert len({tuple(row.sort().values.tolist()) for row in visible}) > 40
    often = (
        torch.cat([random_masking(500, 16, 0.75)[1] for _ in range(8)]).flatten().bincount() / 4000
    )
    assert (often - 0.75).abs().max() < 0.04  # each place alike


@pytest.mark.parametrize(("share", "hidden"), [(0.01, 1), (0.5, 2), (0.99, 3)])
def test_one_patch_at_least_on_each_side(share, hidden):
    assert random_masking(1, 4, share)[1].shape == (1, hidden)


def test_what_cannot_be_split_is_named():
    for N, share in ((16, 0.0), (16, 1.0), (1, 0.5)):
        with pytest.raises(ValueError, match=r"mask_ratio .*got"):
            random_masking(2, N, share)


def test_the_encoder_reads_visible_patches_alone(vit, images):
    autoencoder = MaskedAutoencoder(vit)
    visible, hidden = random_masking(5, 16, 0.75)
    painted = autoencoder.paint(images, visible, hidden)
    assert painted.shape == (5, 12, 4) and autoencoder.encode(images, visible).shape == (5, 5, 64)
    patches = patchify(images, 2).clone()
    patches.scatter_(1, hidden[:, :, None].expand(-1, -1, 4), 9.0)
    other = unpatchify(patches, 2, 8)
    assert torch.allclose(autoencoder.paint(other, visible, hidden), painted, atol=1e-6)


def test_with_every_patch_visible_the_encoder_is_the_vit(vit, images):
    everything = torch.arange(16).expand(5, -1)
    assert torch.allclose(
        MaskedAutoencoder(vit).encode(images, everything), vit.forward_features(images), atol=1e-6
    )


def test_the_loss_is_over_hidden_patches_in_their_own_places(vit, images):
    autoencoder = MaskedAutoencoder(vit)
    _, hidden = random_masking(5, 16, 0.75)
    wanted = patchify(images, 2).gather(1, hidden[:, :, None].expand(-1, -1, 4))
    assert autoencoder.loss((wanted + 0.5, hidden), images).item() == pytest.approx(0.25)


def test_painted_patches_depend_on_the_place_not_on_the_order(vit, images):
    autoencoder = MaskedAutoencoder(vit).eval()
    visible, hidden = random_masking(5, 16, 0.75)
    painted = autoencoder.paint(images, visible, hidden)
    assert torch.allclose(
        autoencoder.paint(images, visible.flip(1), hidden.flip(1)), painted.flip(1), atol=1e-5
    )
    assert not torch.allclose(painted[:, 0], painted[:, 1], atol=1e-3)


def test_a_vit_without_class_token_is_refused():
    config = ViTConfig.from_name(
        "mini/2", image_size=8, in_chans=1, num_classes=0, class_token=False, pool="avg"
    )
    with pytest.raises(ValueError, match="with a class token"):
        MaskedAutoencoder(ViT(config))


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_it_learns_to_paint_digits(vit, optimizer):
    data = load("digits")
    before = {key: value.clone() for key, value in vit.state_dict().items()}
    lines = []
    batches = data.batches("train", 64, shuffle=True)
    losses = pretrain(
        MaskedAutoencoder(vit),
        batches,
        Recipe(epochs=4, optimizer=optimizer),
        report=lambda *x: lines.append(x),
    )
    # always painting the mean gives about 1
    assert losses[-1] < 0.8 * losses[0] and losses[-1] < 0.75
    assert lines == list(enumerate(losses, start=1))
    after = vit.state_dict()
    assert all(not torch.equal(before[key], after[key]) for key in after)


def test_a_loss_that_is_not_finite_stops_the_training(vit):
    batches = [(torch.full((4, 1, 8, 8), float("nan")), torch.zeros(4))]
    with pytest.raises(FloatingPointError, match=r"nan at step 1 \(epoch 1"):
        pretrain(MaskedAutoencoder(vit), batches, Recipe(epochs=1))


def test_the_same_seed_gives_the_same_losses(vit):
    data = load("digits").batches("validation", 60, shuffle=True)
    state, both = {k: v.clone() for k, v in vit.state_dict().items()}, []
    for _ in range(2):
        vit.load_state_dict(state)
        torch.manual_seed(0)
        both.append(pretrain(MaskedAutoencoder(vit), data, Recipe(epochs=2)))
    assert both[0] == both[1]
