"""The planted bugs: signs, masks, minima and maxima, off by one, terminated for ended, eps, ddof, one-sided clips, …"""

from __future__ import annotations

from mutation import Mutant

from mutants import answers, steps

MUTANTS = [
    Mutant(module, function, old, new)
    for source in (steps.SOURCE, answers.SOURCE)
    for module, functions in source.items()
    for function, changes in functions.items()
    for old, new in changes
]
