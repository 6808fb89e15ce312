"""The rules of the house as functions of source text: each yields one sentence a violation.

`tests/test_house.py` runs them over the repository, and over planted bad samples to show that they can fail.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

# Lower floors first; a module may import its own floor and every floor below.
FLOORS: tuple[frozenset[str], ...] = (
    frozenset({"core", "paths"}),
    frozenset({"records", "config", "metrics", "seeding"}),
    frozenset({"learners"}),
    frozenset({"update", "checkpoint", "logbook", "faults"}),
    frozenset({"exact"}),
    frozenset({"rlhf", "control"}),
    frozenset({"scale"}),
    frozenset({"evaluate"}),
    frozenset({"diagnose"}),
    frozenset({"course"}),
    frozenset({"cli", "check"}),
)
NEIGHBOURS_APART = ({"rlhf", "control"},)  # the two worlds meet in `update` only
METRICS_ONLY = frozenset({"diagnose", "records", "config", "metrics", "core", "paths"})  # what diagnose may look at
HOMES = {"deepspeed": ("learners.zero",)}  # the only places that may import it
NEVER_AT_TOP = frozenset({"transformers"})  # only inside a function: it takes a second
FILE_LINES, FUNCTION_LINES, RECIPE_LINES = 300, 40, 80
MACHINE_PATH = re.compile(r"(?<![\w.~>\])}])(?:/(?:home|Users|root|tmp|work|mnt)/|[A-Z]:\\Users\\)[\w.-]+")


@dataclass(frozen=True)
class Import:
    """One imported name, absolute, as ``ppo_lab.core.kl`` or ``torch.nn``."""

    name: str
    line: int
    at_top: bool  # executed when the module is imported
    for_types: bool  # below ``if TYPE_CHECKING``


def imports(source: str, module: str, *, is_package: bool = False) -> Iterator[Import]:
    """Every import of a module, relative ones resolved; ``from a import b`` gives ``a.b``."""
    package = module if is_package else module.rpartition(".")[0]

    def visit(node: ast.AST, at_top: bool, for_types: bool) -> Iterator[Import]:
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, node.lineno, at_top, for_types) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")
            base = ".".join(parts[: len(parts) - node.level + 1]) if node.level else ""
            stem = ".".join(filter(None, [base, node.module]))
            yield from (Import(f"{stem}.{alias.name}", node.lineno, at_top, for_types) for alias in node.names)
        typing = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        inside = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            yield from visit(child, at_top and not inside, for_types or typing)

    yield from visit(ast.parse(source), True, False)


def floor(part: str) -> int | None:
    """The floor a top-level part of the package lives on."""
    return next((i for i, names in enumerate(FLOORS) if part in names), None)


def upward_imports(source: str, module: str, *, is_package: bool = False) -> Iterator[str]:
    """Imports of ppo_lab that point up, or across where neighbours stay apart; types count as well."""
    part = (module.split(".") + [""])[1]
    mine = floor(part) if part else -1
    if mine is None:
        yield f"{module}: {part} is on no floor; add it to FLOORS in tests/house.py"
        return
    for item in imports(source, module, is_package=is_package):
        root, *rest = item.name.split(".")
        if root != "ppo_lab" or not rest or rest[0].startswith("__"):
            continue
        theirs, where = floor(rest[0]), f"{module}:{item.line} imports {item.name}"
        if theirs is None:
            yield f"{where}, which is on no floor"
        elif theirs > mine:
            yield f"{where}, which is above it"
        elif part != rest[0] and any({part, rest[0]} == pair for pair in NEIGHBOURS_APART):
            yield f"{where}, its neighbour"
        elif part == "diagnose" and rest[0] not in METRICS_ONLY:
            yield f"{where}, but diagnose reads metrics only"


def misplaced_packages(source: str, module: str, *, is_package: bool = False) -> Iterator[str]:
    """Heavy packages imported outside their home or at a module's top; core imports torch and nothing else."""
    import sys

    inner = module.partition(".")[2]
    for item in imports(source, module, is_package=is_package):
        root, where = item.name.split(".")[0], f"{module}:{item.line} imports {item.name.split('.')[0]}"
        homes = HOMES.get(root, ("",))
        if not any(inner.startswith(home) for home in homes):
            yield f"{where}, which only {', '.join(homes)} may"
        if root in NEVER_AT_TOP and item.at_top and not item.for_types:
            yield f"{where} at its top; import it in the function that needs it"
        if inner.split(".")[0] == "core" and root not in {"torch", "ppo_lab", *sys.stdlib_module_names}:
            yield f"{where}, but core imports torch only"


def docstring_lines(node: ast.AST) -> int:
    """Lines that the docstring of a function or class takes."""
    body = getattr(node, "body", [])
    first = body[0] if body else None
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        return (first.end_lineno or first.lineno) - first.lineno + 1
    return 0


def too_long(source: str, path: str) -> Iterator[str]:
    """Files above 300 lines; functions above 40 without their docstring (the recipes in train.py: 80)."""
    if (lines := len(source.splitlines())) > FILE_LINES:
        yield f"{path} has {lines} lines, at most {FILE_LINES}; make it a folder"
    most = RECIPE_LINES if path.endswith("/train.py") else FUNCTION_LINES
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1 - docstring_lines(node)
            if length > most:
                yield f"{path}:{node.lineno} {node.name} has {length} lines, at most {most}"


def undocumented(sources: Mapping[str, str]) -> Iterator[str]:
    """Public modules, classes, functions and methods without a docstring; ``sources`` is text by module name.

    A method that fills in one which a base class of the package documents needs none of its own.
    """
    trees = {module: ast.parse(text) for module, text in sources.items()}
    classes = {n.name: n for tree in trees.values() for n in ast.walk(tree) if isinstance(n, ast.ClassDef)}

    def inherited(owner: ast.ClassDef, method: str) -> bool:
        bases = [classes[name] for base in owner.bases if (name := ast.unparse(base).split(".")[-1]) in classes]
        return any(
            any(isinstance(n, ast.FunctionDef) and n.name == method and ast.get_docstring(n) for n in base.body)
            or inherited(base, method)
            for base in bases
            if base is not owner
        )

    def exempt(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
        return any(re.search(r"\.setter|overload", ast.unparse(mark)) for mark in node.decorator_list)

    def visit(module: str, body: list[ast.stmt], owner: ast.ClassDef | None) -> Iterator[str]:
        for node in body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                if not ast.get_docstring(node):
                    yield f"{module}:{node.lineno} class {node.name} has no docstring"
                yield from visit(module, node.body, node)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
                if not (ast.get_docstring(node) or exempt(node) or (owner and inherited(owner, node.name))):
                    yield f"{module}:{node.lineno} {node.name} has no docstring"

    for module, tree in trees.items():
        if not ast.get_docstring(tree):
            yield f"{module} has no docstring"
        yield from visit(module, tree.body, None)


def machine_paths(text: str, path: str) -> Iterator[str]:
    """Absolute paths that exist on one machine only."""
    for number, line in enumerate(text.splitlines(), 1):
        for found in MACHINE_PATH.findall(line):
            yield f"{path}:{number} names {found}"


@dataclass(frozen=True)
class Leaf:
    """One setting: the class it is declared in, its name, and the field names under which that class hangs."""

    owner: str
    name: str
    sections: frozenset[str]


def unread_leaves(leaves: Iterable[Leaf], config_sources: Iterable[str], sources: Iterable[str]) -> Iterator[str]:
    """Settings that no module reads.

    A module reads a leaf where it takes an attribute of that name and also names the leaf's class or section (a leaf of
    the outermost config: takes it from something called config, cfg or settings). A property of a config that is read
    elsewhere reads what it is derived from.
    """
    trees = [ast.parse(text) for text in sources]
    modules = [({attribute(n) for n in ast.walk(tree)}, words(tree)) for tree in trees]
    everywhere = {name for attributes, _ in modules for _, name in attributes}
    derived: set[tuple[str, str]] = set()
    functions = [n for text in config_sources for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef)]
    properties = [n for n in functions if any(ast.unparse(d) == "property" for d in n.decorator_list)]
    for _ in properties:  # a property may stand on another one
        read = everywhere | {name for _, name in derived}
        derived |= {attribute(n) for p in properties if p.name in read for n in ast.walk(p)}
    for leaf in leaves:
        direct = {(section, leaf.name) for section in leaf.sections or {"config", "cfg", "settings", "self"}}
        named = {leaf.owner, *leaf.sections}
        if direct & derived or (("self", leaf.name) in derived and leaf.sections):
            continue
        if not any(
            direct & attributes or (named & text and leaf.name in {name for _, name in attributes})
            for attributes, text in modules
        ):
            yield f"{leaf.owner}.{leaf.name} is read nowhere; use it or remove it"


def attribute(node: ast.AST) -> tuple[str, str]:
    """``(owner, name)`` of an attribute read such as ``self.config.steps`` → ``("config", "steps")``."""
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
        owner = node.value
        last = owner.attr if isinstance(owner, ast.Attribute) else owner.id if isinstance(owner, ast.Name) else ""
        return last, node.attr
    return "", ""


def words(tree: ast.AST) -> set[str]:
    """Every name and attribute that a module mentions."""
    names = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    return names | {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
