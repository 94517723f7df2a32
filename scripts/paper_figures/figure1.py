"""Figure 1: the relaxed masks are sparse, as the hard one, and continuous, as it is not."""

from scripts.paper_figures.moving_entry import LAM, drawn
from scripts.paper_figures.setting import Drawing
from scripts.paper_figures.style import HALF, HARD, SMOOTH

LINES = {
    "hard": (None, HARD),
    "$p = 2$": (2.0, HALF),
    "$p = 4/3$": (4 / 3, SMOOTH),
}


FIGURE1 = Drawing(
    name="figure1",
    number=1,
    caption=(
        r"The top-k mask of $\theta(s) = (3, 1, s - 1, s)$ for $k = 2$: $y_2 + y_3$ against $s$. The hard mask jumps "
        rf"where two entries tie, at $s = 1$ and $s = 4$. The relaxed ones ($\lambda = {LAM:g}$) are continuous: "
        "with kinks for $p = 2$, differentiable along this line for $p = 4/3$. All three are exactly 0 in between."
    ),
    draw=lambda setting: drawn(setting, LINES),
)
