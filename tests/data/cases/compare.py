"""Tiny helper for adapters: load cases, decode inputs, compare outputs. Needs only numpy."""
# ruff: noqa
import glob, json, os
import numpy as np

def decode(x):
    if isinstance(x, list):
        return [decode(v) for v in x]
    return float(x) if x in ("nan", "inf", "-inf") else x

def load(folder):
    """-> list of cases (dicts); strings 'nan'/'inf'/'-inf' inside numeric lists become floats."""
    cases = []
    for path in sorted(glob.glob(os.path.join(folder, "*.json"))):
        for c in json.load(open(path))["cases"]:
            c["inputs"] = {k: decode(v) for k, v in c["inputs"].items()}
            cases.append(c)
    return cases

def check(case, outputs, precision="float64"):
    """outputs: name -> array-like. Returns a list of problems (empty = pass). Only names in `expected` are compared."""
    tol = case["tol_f32"] if precision == "float32" else case["tol"]
    bad = []
    for name, want in case["expected"].items():
        if name not in outputs:
            bad.append(f"{name}: missing"); continue
        got = np.asarray(outputs[name], dtype=np.float64)
        if isinstance(want, dict):                       # sub-gradient interval
            lo, hi = (np.asarray(decode(want["interval"][k]), float) for k in ("lo", "hi"))
            if got.shape != lo.shape or not np.all((got >= lo - tol["atol"]) & (got <= hi + tol["atol"])):
                bad.append(f"{name}: {got.tolist()} not within [{lo.tolist()}, {hi.tolist()}]")
            continue
        want = np.asarray(decode(want), dtype=np.float64)
        if got.shape != want.shape:
            bad.append(f"{name}: shape {got.shape} != {want.shape}")
        elif not np.allclose(got, want, atol=tol["atol"], rtol=tol["rtol"], equal_nan=True):
            bad.append(f"{name}: got {got.ravel()[:6].tolist()} want {want.ravel()[:6].tolist()}")
    for name in case.get("nonneg", []):
        if name in outputs and np.asarray(outputs[name], float).min() < 0:
            bad.append(f"{name}: negative value")
    return bad
