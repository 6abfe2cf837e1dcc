"""Colours of series can be told from the page and from each other, by every reader."""

from itertools import combinations

import pytest

from softmax_rnn.report import theme

from .colour_vision import VISIONS, contrast, distance, lab

# CIEDE2000 between any two series; WCAG's contrast of graphics with what they lie on.
APART, FROM_PAPER = 10, 3
THEMES = [(theme.ON_LIGHT, theme.LIGHT), (theme.ON_DARK, theme.DARK)]


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ((50, 2.6772, -79.7751), (50, 0, -82.7485), 2.0425),
        ((50, 2.5, 0), (61, -5, 29), 22.8977),
        ((22.7233, 20.0904, -46.694), (23.0331, 14.973, -42.5619), 2.0373),
        ((2.0776, 0.0795, -1.135), (0.9033, -0.0636, -0.5514), 0.9082),
        ((50, 0, 0), (50, -1, 2), 2.3669),
    ],
)
def test_the_distance_is_ciede2000(one, other, expected):
    """Pairs of the test data of Sharma, Wu and Dalal (2005)."""
    assert distance(one, other) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("vision", VISIONS)
def test_greys_are_seen_as_they_are(vision):
    assert distance(lab("#7c7c7c", vision), lab("#7c7c7c")) < 0.1


@pytest.mark.parametrize("vision", VISIONS)
@pytest.mark.parametrize(("series", "colours"), THEMES, ids=["light", "dark"])
def test_series_differ_for_every_reader(series, colours, vision):
    result = {(a, b): distance(lab(a, vision), lab(b, vision)) for a, b in combinations(series, 2)}
    assert len(result) == 36
    assert min(result.values()) >= APART, min(result, key=result.__getitem__)


@pytest.mark.parametrize(("series", "colours"), THEMES, ids=["light", "dark"])
def test_series_stand_out_from_the_paper(series, colours):
    assert min(contrast(colour, colours["paper"]) for colour in series) >= FROM_PAPER
    assert [colours[f"series-{i}"] for i in range(1, 10)] == list(series)
