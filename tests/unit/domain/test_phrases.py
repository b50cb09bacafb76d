"""How many names are said in a sentence or a table."""

import pytest

from forewarn.domain.phrases import say_ranges


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["h01", "h02", "h03"], "h01 … h03"),
        (["h01", "h02"], "h01, h02"),
        (["h09", "h10", "h11"], "h09 … h11"),
        (["h9", "h10", "h11"], "h9 … h11"),
        (["h099", "h100", "h101"], "h099 … h101"),
        (["rack-1-h9", "rack-2-h9", "rack-3-h9"], "rack-1-h9 … rack-3-h9"),
        (["h01", "h02", "h03", "h05", "h06", "h07"], "h01 … h03, h05 … h07"),
        (["h1", "h3", "h5", "h7", "h9"], "h1, h3, h5, h7, h9"),
        (
            [f"h{2 * each}" for each in range(1, 11)],
            "h2, h4, h6, h8, h10, h12, h14, h16 and 2 more",
        ),
        (
            [f"h{each}" for each in range(60) if each % 5],
            ("h1 … h4, h6 … h9, h11 … h14, h16 … h19 and 32 more"),
        ),
        (["h3", "h2", "h1"], "h3, h2, h1"),
        (["alpha", "beta", "gamma"], "alpha, beta, gamma"),
        (["a1b1", "a2b2", "a3b3"], "a1b1, a2b2, a3b3"),
        (["h1", "h1-1", "h1-2"], "h1, h1-1, h1-2"),
        (["a1", "b2", "c3"], "a1, b2, c3"),
    ],
)
def test_range_is_said_only_where_no_number_is_missing(names: list[str], said: str) -> None:
    assert say_ranges(names) == said
