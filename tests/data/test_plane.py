"""Densities on the unit square: log densities against scipy, and samples against the densities."""

from __future__ import annotations

import itertools
import subprocess
import sys

import numpy as np
import pytest
from scipy import integrate, stats

from cubicflow.data.plane import BLOCKS, GaussianGrid, ImageDensity, even_points, read_grey


def brute_force_log_prob(x: np.ndarray, side: int, std: float) -> np.ndarray:
    """Return the log density by definition: side**2 two-dimensional normals, divided by their mass on the square."""
    density, mass = np.zeros(len(x)), 0.0
    for i in range(side):
        for j in range(side):
            centre = np.array([(i + 0.5) / side, (j + 0.5) / side])
            density += stats.multivariate_normal(centre, std**2).pdf(x) / side**2
            inside = stats.norm.cdf((1 - centre) / std) - stats.norm.cdf(-centre / std)
            mass += inside.prod() / side**2
    return np.log(density / mass)


@pytest.mark.parametrize(("side", "std"), [(15, 1 / 150), (3, 0.2), (1, 1.0)])
def test_log_prob_is_the_truncated_mixture(side: int, std: float) -> None:
    grid = GaussianGrid(side, std)
    x = grid.sample(200, 1)
    np.testing.assert_allclose(grid.log_prob(x), brute_force_log_prob(x.astype(float), side, std), rtol=0, atol=1e-9)


@pytest.mark.parametrize(("side", "std"), [(3, 0.2), (2, 0.1)])
def test_density_integrates_to_one(side: int, std: float) -> None:
    grid = GaussianGrid(side, std)
    total, error = integrate.dblquad(lambda y, x: np.exp(grid.log_prob([[x, y]])[0]), 0, 1, 0, 1, epsabs=1e-8)
    assert abs(total - 1) < 10 * error + 1e-12


@pytest.mark.parametrize(("side", "std"), [(15, 1 / 150), (2, 0.3)])
def test_masses_of_gaussians_against_quadrature(side: int, std: float) -> None:
    grid = GaussianGrid(side, std)
    edges = np.array([0, 0.03, 0.04, 0.5, 1])
    masses = grid.masses(edges)
    assert masses.sum() == pytest.approx(1, abs=1e-12)
    ends = stats.norm.cdf((edges[:, None] - grid.centres) / std).mean(axis=1)
    axis = np.diff(ends) / (ends[-1] - ends[0])
    np.testing.assert_allclose(masses, axis[:, None] * axis, rtol=0, atol=1e-12)
    by_area = integrate.dblquad(lambda y, x: np.exp(grid.log_prob([[x, y]])[0]), 0.03, 0.04, 0, 0.03, epsabs=1e-10)
    assert masses[0, 1] == pytest.approx(by_area[0], abs=1e-9), "the first axis is y, the second x"


def test_masses_of_a_picture_are_those_of_its_points() -> None:
    picture = ImageDensity(np.random.default_rng(0).random((8, 8)))
    edges = np.array([0, 0.3, 0.55, 1])  # inner edges differ from the edges of pixels
    expected = np.zeros((3, 3))
    fine = (np.arange(400) + 0.5) / 400  # all edges of pixels and blocks are multiples of 1 / 400
    for i, j in itertools.product(range(3), repeat=2):
        y, x = (fine[(fine > edges[n]) & (fine < edges[n + 1])] for n in (i, j))
        points = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
        expected[i, j] = np.exp(picture.log_prob(points)).sum() / 400**2
    np.testing.assert_allclose(picture.masses(edges), expected, rtol=1e-12)


def test_the_225_gaussians_agree_with_the_paper() -> None:
    grid = GaussianGrid()
    assert (grid.side, grid.std) == (15, 1 / 150)
    np.testing.assert_allclose(grid.centres, [(i + 0.5) / 15 for i in range(15)])
    # At a centre the density is one Gaussian's peak: the next is 10 standard deviations away.
    peak = -np.log(225 * 2 * np.pi / 150**2)
    np.testing.assert_allclose(grid.log_prob([[7.5 / 15, 2.5 / 15]]), peak, atol=1e-6)


def test_expected_log_prob_agrees_with_adaptive_quadrature() -> None:
    grid = GaussianGrid()

    def integrand(x: float) -> float:
        axis = grid.log_prob([[x, 0.5]])[0] - grid.log_prob([[0.5, 0.5]])[0] / 2
        return float(np.exp(axis) * axis)

    edges = np.linspace(0, 1, 16)
    pieces = [integrate.quad(integrand, a, b, epsabs=1e-12) for a, b in itertools.pairwise(edges)]
    assert grid.expected_log_prob() == pytest.approx(2 * sum(value for value, _ in pieces), abs=1e-9)


@pytest.mark.parametrize(("side", "std"), [(1, 1e-4), (15, 1e-5), (15, 1e-7)])
def test_narrow_gaussians_have_the_entropy_of_gaussians_far_apart(side: int, std: float) -> None:
    expected = -np.log(2 * np.pi * np.e * std**2 * side**2)  # two axes, each a mixture without overlap
    assert GaussianGrid(side, std).expected_log_prob() == pytest.approx(expected, abs=1e-6)


def test_samples_score_the_expected_log_prob() -> None:
    grid = GaussianGrid()
    scores = grid.log_prob(grid.sample(200_000, 3))
    standard_error = scores.std() / np.sqrt(len(scores))
    assert abs(scores.mean() - grid.expected_log_prob()) < 4 * standard_error


@pytest.mark.parametrize("std", [1 / 150, 0.5])
def test_samples_stay_in_the_square_and_follow_the_axis_density(std: float) -> None:
    grid = GaussianGrid(15 if std < 0.1 else 2, std)
    x = grid.sample(20_000, 5)
    assert x.dtype == np.float32
    assert x.min() >= 0
    assert x.max() <= 1
    low = stats.norm.cdf(-grid.centres / std)
    mass = (stats.norm.cdf((1 - grid.centres) / std) - low).sum()

    def cdf(values: np.ndarray) -> np.ndarray:
        return np.asarray((stats.norm.cdf((values[:, None] - grid.centres) / std) - low).sum(axis=1) / mass)

    for axis in range(2):
        assert stats.kstest(x[:, axis], cdf).pvalue > 1e-4
    assert abs(np.corrcoef(x.T)[0, 1]) < 4 / np.sqrt(len(x))


def test_seeds_repeat_and_generators_advance() -> None:
    grid, generator = GaussianGrid(), np.random.default_rng(7)
    first = grid.sample(50, generator)
    np.testing.assert_array_equal(first, grid.sample(50, 7))
    assert not np.array_equal(first, grid.sample(50, generator))


def test_outside_the_square_the_density_is_zero() -> None:
    outside = [[-1e-9, 0.5], [0.5, 1 + 1e-9], [np.nan, 0.5], [np.inf, 0.5]]
    for density in (GaussianGrid(), ImageDensity(np.ones((4, 4)))):
        assert np.isneginf(density.log_prob(outside)).all()
        assert np.isfinite(density.log_prob([[0, 0], [1, 1], [0, 1]])).all()
        with pytest.raises(ValueError, match=r"shape \(n, 2\), got \(3,\)"):
            density.log_prob([0.1, 0.2, 0.3])


@pytest.mark.parametrize(("arguments", "message"), [((0, 0.1), "side must be"), ((3, 0.0), "std must be")])
def test_grid_arguments(arguments: tuple[int, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GaussianGrid(*arguments)


def test_image_samples_fall_on_pixels_in_proportion_and_upright() -> None:
    weights = np.array([[1.0, 2.0, 0.0, 1.0], [0, 0, 0, 4], [5, 1, 1, 1], [0, 3, 0, 1]])  # row 0 is the top
    density = ImageDensity(weights)
    n = 40_000
    x = density.sample(n, 0).astype(float)
    counts = np.zeros((4, 4))
    for row in range(4):
        for column in range(4):
            inside = (x[:, 0] // 0.25 == column) & (x[:, 1] // 0.25 == 3 - row)  # y points up
            counts[row, column] = inside.sum()
    assert (counts[weights == 0] == 0).all()
    expected = n * weights / weights.sum()
    kept = weights > 0
    assert stats.chisquare(counts[kept], expected[kept]).pvalue > 1e-4
    assert stats.kstest((4 * x % 1).ravel(), "uniform").pvalue > 1e-4
    top_left = density.log_prob([[0.1, 0.9]])[0]
    assert top_left == pytest.approx(np.log(1 / 20 * 16))


def test_image_density_is_normalised_and_knows_its_entropy() -> None:
    density = ImageDensity(np.random.default_rng(0).random((8, 8)))
    centres = (np.arange(8) + 0.5) / 8
    grid = np.stack(np.meshgrid(centres, centres), axis=-1).reshape(-1, 2)
    log_prob = density.log_prob(grid)
    assert np.exp(log_prob).mean() == pytest.approx(1)
    assert density.expected_log_prob() == pytest.approx((np.exp(log_prob) * log_prob).mean())


def test_image_points_never_round_into_the_next_pixel() -> None:
    # All weight is in one pixel, next to a pixel of weight zero and far from 0, where float32 is coarsest.
    weights = np.zeros((512, 512))
    weights[0, 510] = 1
    density = ImageDensity(weights)
    assert np.isfinite(density.log_prob(density.sample(300_000, 0))).all()
    weights[:] = 0
    weights[0, 511] = 1
    assert ImageDensity(weights).sample(300_000, 0).max() < 1


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones((2, 4)), "square"),
        (np.ones((3, 3)), "power of two"),
        (np.zeros((2, 2)), "try the other of by="),
        (np.array([[1.0, -1.0], [1.0, 1.0]]), "not negative"),
        (np.array([[1.0, np.nan], [1.0, 1.0]]), "finite"),
    ],
)
def test_image_weights_are_checked(weights: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ImageDensity(weights)


def test_picture_files(tmp_path) -> None:
    image = pytest.importorskip("PIL.Image")
    dark_left = np.full((40, 80), 255, np.uint8)
    dark_left[:, :40] = 0
    path = tmp_path / "picture.png"
    image.fromarray(dark_left).save(path)

    cropped = read_grey(path, size=16)
    stretched = read_grey(path, size=16, fit="stretch")
    assert cropped.shape == stretched.shape == (16, 16)
    np.testing.assert_array_equal(stretched[:, 0], 0)
    np.testing.assert_array_equal(stretched[:, -1], 255)
    # Black meets white in the middle of the centred square; Lanczos blurs three pixels to either side.
    assert (cropped[:, :5] == 0).all()
    assert (cropped[:, 11:] == 255).all()

    by_darkness = ImageDensity.from_file(path, size=16).sample(2000, 0)
    by_light = ImageDensity.from_file(path, size=16, by="light").sample(2000, 0)
    assert by_darkness[:, 0].max() < 11 / 16
    assert by_light[:, 0].min() >= 5 / 16


def test_transparent_pixels_are_white(tmp_path) -> None:
    image = pytest.importorskip("PIL.Image")
    path = tmp_path / "clear.png"
    image.new("RGBA", (4, 4), (0, 0, 0, 0)).save(path)
    assert (read_grey(path, size=4) == 255).all()


def test_grey_is_itu_601_luma(tmp_path) -> None:
    image = pytest.importorskip("PIL.Image")
    path = tmp_path / "colour.png"
    colour = (200, 100, 50)
    image.new("RGB", (4, 4), colour).save(path)
    expected = 0.299 * colour[0] + 0.587 * colour[1] + 0.114 * colour[2]
    assert np.abs(read_grey(path, size=4).astype(float) - expected).max() <= 0.5


def test_built_in_picture_is_upright() -> None:
    pytest.importorskip("matplotlib")
    density = ImageDensity.from_file()
    assert density.size == 512
    points = density.sample(20_000, 0)
    # Grace Hopper's uniform, at the bottom in the middle, is darker than the wall beside her head.
    uniform = ((np.abs(points[:, 0] - 0.5) < 0.2) & (points[:, 1] < 0.2)).mean()
    wall = ((points[:, 0] > 0.8) & (np.abs(points[:, 1] - 0.8) < 0.2)).mean()
    assert uniform / (0.4 * 0.2) > 1.2 * wall / (0.2 * 0.4)


@pytest.mark.parametrize("ending", ["png", "tiff"])
def test_16_bit_pictures_equal_8_bit_pictures(tmp_path, ending: str) -> None:
    image = pytest.importorskip("PIL.Image")
    ramp = np.tile(np.arange(256, dtype=np.uint16), (256, 1))
    image.fromarray(ramp * 257).save(tmp_path / f"deep.{ending}")
    image.fromarray(ramp.astype(np.uint8)).save(tmp_path / f"plain.{ending}")
    deep, plain = (read_grey(tmp_path / f"{name}.{ending}", size=256) for name in ("deep", "plain"))
    np.testing.assert_array_equal(deep, plain)
    image.fromarray((ramp / 255).astype(np.float32)).save(tmp_path / "float.tiff")
    with pytest.raises(ValueError, match=r"float\.tiff has 32-bit pixels.* save the picture with 8 bits"):
        read_grey(tmp_path / "float.tiff")


def test_picture_errors(tmp_path) -> None:
    image = pytest.importorskip("PIL.Image")
    image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64), np.uint8)).save(tmp_path / "half.jpg")
    (tmp_path / "half.jpg").write_bytes((tmp_path / "half.jpg").read_bytes()[:1500])
    with pytest.raises(ValueError, match=r"half\.jpg is not a complete picture"):
        read_grey(tmp_path / "half.jpg")
    with pytest.raises(FileNotFoundError, match="no such picture"):
        read_grey(tmp_path / "none.jpg")
    (tmp_path / "text.jpg").write_text("not a picture")
    with pytest.raises(ValueError, match="convert it to PNG or JPEG"):
        read_grey(tmp_path / "text.jpg")
    with pytest.raises(ValueError, match="power of two"):
        read_grey(size=500)
    with pytest.raises(ValueError, match="'crop' or 'stretch'"):
        read_grey(fit="squash")
    with pytest.raises(ValueError, match="'darkness' or 'light'"):
        ImageDensity.from_file(by="colour")


def test_real_portraits(real_data) -> None:
    pytest.importorskip("PIL")
    for name in ("einstein.jpg", "gauss.jpg"):
        path = real_data / "plane" / name
        if not path.exists():
            pytest.skip(f"{path} is not there")
        density = ImageDensity.from_file(path)
        scores = density.log_prob(density.sample(100_000, 0))
        assert abs(scores.mean() - density.expected_log_prob()) < 4 * scores.std() / np.sqrt(len(scores))


def test_importing_the_densities_imports_no_other_package() -> None:
    code = (
        "import sys, cubicflow.data.plane; "
        "print([m for m in ('h5py', 'matplotlib', 'pandas', 'PIL', 'pyarrow', 'scipy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_even_points_follow_the_density_closely() -> None:
    density, n, edges = GaussianGrid(side=3, std=0.05), 40_000, np.linspace(0, 1, 17)
    points = even_points(density, n)
    expected = n * density.masses(edges)
    counts = np.histogram2d(points[:, 1], points[:, 0], bins=[edges, edges])[0]
    # Each row of a cell has a count that is at most one off, and a cell has BLOCKS / 16 rows.
    assert (np.abs(counts - expected) <= BLOCKS / 16 + 1e-6).all()
    drawn = np.histogram2d(*density.sample(n, 0)[:, ::-1].T, bins=[edges, edges])[0]
    full = expected > 50
    assert np.std((counts - expected)[full]) < 0.2 * np.std((drawn - expected)[full])
