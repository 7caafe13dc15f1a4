"""Pictures of runs, with matplotlib.

Each function draws one kind of run and returns a new `matplotlib.figure.Figure`, which is not that of
``pyplot``: save it with ``figure.savefig("FILE.svg")``, or let a notebook show it. Colours can be
distinguished by people who do not see all of them (Okabe and Ito, 2008). The line below each picture
says how its numbers were measured.

What could not be measured is not drawn. Where nothing is left to draw, `NothingToDraw` says why.
"""

from __future__ import annotations

from irqlab.plot._distribution import distribution
from irqlab.plot._footprint import footprint
from irqlab.plot._handlers import handlers
from irqlab.plot._noise import noise
from irqlab.plot._signal import signal
from irqlab.plot._style import NothingToDraw

__all__ = ["NothingToDraw", "distribution", "footprint", "handlers", "noise", "signal"]
