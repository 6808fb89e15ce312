"""The numeric case files, asked of ppo_lab; their schema is in ../data/cases/SCHEMA.md.

An op is a function of the case's inputs (optional ones have defaults) that returns the outputs by name; `evaluate` adds
the gradients a case asks for. Calls go through modules, not imported names: a mutation run exchanges functions.
"""

from cases import answers, steps
from cases.tools import OPS, evaluate

__all__ = ["OPS", "answers", "evaluate", "steps"]
