"""Symmetries of rows compared with NumPy's flips and transposes, and the frequencies of random draws."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from cubicflow.data.symmetries import Symmetries

MIRRORS = [lambda a: a, lambda a: a[..., ::-1], lambda a: a[..., ::-1, :], lambda a: a[..., ::-1, ::-1]]
TRANSPOSED = [lambda a, mirror=mirror: mirror(np.swapaxes(a, -1, -2)) for mirror in MIRRORS]


def images_of(shape: tuple[int, ...], kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Return seven random images (7, ...), and each of them under every map (maps, 7, ...)."""
    images = np.random.default_rng(0).standard_normal((7, *shape))
    maps = MIRRORS if kind == "mirror" else MIRRORS + TRANSPOSED
    return images, np.stack([np.stack([move(image) for image in images]) for move in maps])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("shape", "kind"),
    [((3, 5), "mirror"), ((2, 3, 4), "mirror"), ((8, 8), "mirror"), ((8, 8), "square"), ((3, 4, 4), "square")],
)
def test_images_equal_numpys_bit_for_bit(shape: tuple[int, ...], kind: str, dtype: torch.dtype) -> None:
    images, expected = images_of(shape, kind)
    rows = torch.from_numpy(images).to(dtype).flatten(1)
    found = Symmetries.of_image(shape, kind).images(rows)
    assert found.dtype == dtype
    assert torch.equal(found, torch.from_numpy(expected).to(dtype).reshape(-1, rows.shape[1]))


@pytest.mark.parametrize(
    ("shape", "kind"), [((3, 5), "mirror"), ((2, 3, 4), "mirror"), ((8, 8), "square"), ((3, 4, 4), "square")]
)
def test_images_with_their_mean_removed_are_mapped_as_whole_images(shape: tuple[int, ...], kind: str) -> None:
    """The rows lack the last pixel. The whole image is mapped, and the pixel that is then last is dropped."""
    images, expected = images_of(shape, kind)
    mean = images.reshape(7, -1).mean(1)
    rows = images.reshape(7, -1)[:, :-1] - mean[:, None]
    expected = expected.reshape(-1, 7, images[0].size)[..., :-1] - mean[:, None]
    symmetries = Symmetries.of_image(shape, kind, mean_removed=True)
    found = symmetries.images(torch.from_numpy(rows)).numpy().reshape(expected.shape)
    np.testing.assert_allclose(found, expected, atol=1e-13)
    # In float32 every value is exact, except the one that is minus the sum of the others.
    narrow = torch.from_numpy(rows).float()
    found = symmetries.images(narrow).numpy().reshape(expected.shape)
    moved = found != expected.astype(np.float32)
    assert (moved.sum(-1) <= 1).all()
    np.testing.assert_allclose(found, expected, atol=narrow.numel() * np.finfo(np.float32).eps)


@pytest.mark.parametrize("mean_removed", [False, True])
@pytest.mark.parametrize("kind", ["mirror", "square"])
def test_the_composition_of_two_maps_is_a_map(kind: str, mean_removed: bool) -> None:
    matrices = Symmetries.of_image((4, 4), kind, mean_removed=mean_removed).matrices
    assert len(matrices) == len(matrices.unique(dim=0)) == {"mirror": 4, "square": 8}[kind]
    for first, second in product(matrices, repeat=2):
        assert sum(torch.equal(second @ first, known) for known in matrices) == 1


def test_permutations_of_columns() -> None:
    orders = [[0, 1, 2, 3], [3, 0, 1, 2], np.array([2, 3, 0, 1])]
    rows = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    found = Symmetries.of_permutations(orders).images(rows)
    assert torch.equal(found, torch.cat([rows[:, torch.as_tensor(order)] for order in orders]))


@pytest.mark.parametrize("mean_removed", [False, True])
def test_draws_are_images_and_all_maps_are_equally_likely(mean_removed: bool) -> None:
    symmetries = Symmetries.of_image((3, 3), "square", mean_removed=mean_removed)
    n = 4_000
    x = torch.randn(n, symmetries.features, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    images = symmetries.images(x).reshape(8, n, -1)
    torch.manual_seed(1)
    drawn = symmetries.draw(x)
    is_image = (drawn - images).abs().amax(-1) < 1e-12  # (8, n)
    assert torch.equal(is_image.sum(0), torch.ones(n, dtype=torch.int64))
    assert chisquare(is_image.sum(1).numpy()).pvalue > 1e-3
    # Neighbouring rows are drawn independently: all pairs of maps are equally likely.
    which = is_image.double().argmax(0)
    pairs = np.bincount((8 * which[::2] + which[1::2]).numpy(), minlength=64)
    assert chisquare(pairs).pvalue > 1e-3


def test_draws_follow_the_seed() -> None:
    symmetries, x = Symmetries.of_image((3, 3), "square"), torch.rand(50, 9)

    def drawn(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return symmetries.draw(x)

    assert torch.equal(drawn(3), drawn(3))
    assert not torch.equal(drawn(3), drawn(4))
    assert not x.requires_grad
    assert symmetries.draw(x[:0]).shape == (0, 9)


def test_autocast_does_not_reduce_the_precision() -> None:
    symmetries, x = Symmetries.of_image((3, 3), "mirror"), torch.rand(50, 9)
    with torch.autocast("cpu", torch.bfloat16):
        drawn = symmetries.draw(x)
    assert drawn.dtype == torch.float32
    assert torch.equal(drawn.sort(1).values, x.sort(1).values)


def test_float32_rotations_are_accepted() -> None:
    matrix = torch.linalg.qr(torch.randn(60, 60, generator=torch.Generator().manual_seed(0)))[0]
    assert torch.equal(Symmetries(matrix[None]).matrices, matrix[None].double())


def test_other_maps_have_another_fingerprint() -> None:
    known = [
        Symmetries.of_image((4, 4), kind, mean_removed=removed) for kind in ("mirror", "square") for removed in (0, 1)
    ]
    same = Symmetries(Symmetries.of_image((4, 4), "mirror").matrices * torch.tensor(1.0))
    minus = Symmetries(-known[0].matrices)
    phrases = [symmetries.described() for symmetries in (*known, minus)]
    assert len({phrase.split()[-1] for phrase in phrases}) == 5
    assert same.described() == phrases[0]
    assert phrases[0].startswith("4 maps of 16 columns, fingerprint ")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Symmetries(torch.eye(3)), r"matrices must have shape \(maps, columns, columns\).*got \(3, 3\)"),
        (lambda: Symmetries(torch.zeros(0, 3, 3)), r"at least one map and one column, got \(0, 3, 3\)"),
        (lambda: Symmetries(torch.ones(2, 3, 4)), r"got \(2, 3, 4\)"),
        (
            lambda: Symmetries([np.eye(3), 1.001 * np.eye(3)]),
            r"must preserve volume, \|det\| = 1, but matrix 1 has \|det\| = 1.003",
        ),
        (lambda: Symmetries(torch.zeros(1, 2, 2)), r"matrix 0 has \|det\| = 0; leave"),
        (lambda: Symmetries(torch.full((1, 2, 2), torch.nan)), r"matrix 0 has \|det\| = nan"),
        (lambda: Symmetries.of_permutations([]), "permutations must hold at least one permutation"),
        (
            lambda: Symmetries.of_permutations([[0, 1], [1, 1]]),
            r"permutation 1 must hold every number from 0 to 1 once, got \[1, 1\]",
        ),
        (lambda: Symmetries.of_permutations([[0, 1], [0, 1, 2]]), r"permutation 1 must .* got \[0, 1, 2\]"),
        (lambda: Symmetries.of_image((4, 5), "square"), r"'square' needs height = width, got shape \(4, 5\); use kind"),
        (lambda: Symmetries.of_image((4, 4), "squares"), "no kind 'squares'; did you mean 'square'"),
        (lambda: Symmetries.of_image((16,), "mirror"), r"shape must be \(height, width\) or .* got \(16,\)"),
        (lambda: Symmetries.of_image((0, 4), "mirror"), r"shape must be .* got \(0, 4\)"),
    ],
)
def test_maps_that_are_no_symmetry_are_refused(make, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("x", [torch.zeros(5, 8), torch.zeros(5, 3, 3), torch.zeros(5, 9, dtype=torch.uint8)])
def test_rows_of_another_shape_or_dtype_are_refused(x: torch.Tensor) -> None:
    symmetries = Symmetries.of_image((3, 3), "mirror")
    for use in (symmetries.draw, symmetries.images):
        with pytest.raises(ValueError, match=r"rows must be floats of shape \(N, 9\), got torch\..*of shape \(5, "):
            use(x)
