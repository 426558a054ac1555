"""The package as a whole: its version, its types, its help, and what importing it brings."""

from __future__ import annotations

import ast
import importlib.metadata
import pydoc
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
import tcpx
from tcpx import _core

PACKAGE = Path(tcpx.__file__).parent
ROOT = Path(__file__).resolve().parents[2]
#: Python files by the names of their modules.
MODULES = {
    ".".join(one.relative_to(ROOT / "python").with_suffix("").parts): one for one in (ROOT / "python" / "tcpx").rglob("*.py")
}
#: Names of Python's own modules and of torch's that begin like private ones.
FOREIGN = {"_C", "_SimpleCData", "_b_base_", "_base", "_cuda_getCurrentRawStream", "_get_default_store", "_replace"}


def stub_names(body: list[ast.stmt]) -> dict[str, list[str] | dict[str, list[str]]]:
    """What a stub declares: functions with their parameters, classes with their methods."""
    names: dict[str, list[str] | dict[str, list[str]]] = {}
    for entry in body:
        if isinstance(entry, ast.ClassDef):
            names[entry.name] = {
                name: parameters for name, parameters in stub_names(entry.body).items() if isinstance(parameters, list)
            }
        elif isinstance(entry, ast.FunctionDef):
            names[entry.name] = [argument.arg for argument in entry.args.posonlyargs + entry.args.args]
        elif isinstance(entry, ast.AnnAssign) and isinstance(entry.target, ast.Name):
            names[entry.target.id] = []
    return names


def parameters_of(function: object) -> list[str]:
    """Of a function of the extension module. Those without a name are called arg or arg0, arg1 and so on."""
    (signature, *_), *_ = function.__nb_signature__  # type: ignore[attr-defined]
    text = re.sub(r"ndarray\[[^]]*\]", "Any", signature)  # is no Python
    (declared,) = ast.parse(f"{text}: ...").body
    assert isinstance(declared, ast.FunctionDef)
    return [argument.arg for argument in declared.args.posonlyargs + declared.args.args]


def same(declared: list[str], found: list[str]) -> bool:
    return len(declared) == len(found) and all(
        one == other or re.fullmatch(r"arg\d*", other) for one, other in zip(declared, found)
    )


def test_the_version_is_that_of_the_library() -> None:
    project = re.search(r"project\(tcpx VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())
    assert project is not None
    assert tcpx.__version__ == _core.version == project[1]


def test_an_installed_package_says_the_same_version() -> None:
    if (PACKAGE / "__init__.py").is_symlink():
        pytest.skip("the package of a build folder, which is not installed")
    assert importlib.metadata.version("tcpx") == tcpx.__version__


def test_type_checkers_find_its_types() -> None:
    assert (PACKAGE / "py.typed").exists()
    assert (PACKAGE / "_core.pyi").exists()


def test_the_stub_says_what_the_extension_module_has() -> None:
    declared = stub_names(ast.parse((PACKAGE / "_core.pyi").read_text()).body)
    assert declared.keys() == {name for name in vars(_core) if not name.startswith("__")}
    for name, entry in declared.items():
        found = getattr(_core, name)
        if isinstance(entry, dict):
            plain = {method for method in entry if not method.startswith("__")}
            assert plain == {method for method in vars(found) if not method.startswith("__")}
            assert entry.keys() <= vars(found).keys() | {"__init__"}
            for method, parameters in entry.items():
                if method in plain and parameters:  # no attribute
                    assert same(parameters, parameters_of(vars(found)[method])), f"{name}.{method}"
        elif callable(found):
            assert same(entry, parameters_of(found)), name


def binaries() -> list[Path]:
    """Programs and libraries of the package."""
    files = [file for file in PACKAGE.rglob("*") if file.is_file() and file.suffix != ".py"]
    return [file for file in files if file.read_bytes()[:4] == b"\x7fELF"]


def test_a_glibc_of_2021_is_enough() -> None:
    if shutil.which("nm") is None:
        pytest.skip("no nm (binutils)")
    for file in binaries():
        run = subprocess.run(["nm", "-D", "--undefined-only", file], capture_output=True, text=True, timeout=60, check=True)
        versions = re.findall(r"(\w+)@GLIBC_2\.(\d+)", run.stdout)
        assert len(versions) > 20, f"is {file} one of ours?"
        # Headers of glibc 2.38 and later put __isoc23_sscanf in place of sscanf: wheels are built on an older system.
        newer = [name for name, minor in versions if int(minor) > 34 and not name.startswith("__isoc23_")]
        assert not newer, f"{file} needs {newer}"


def test_the_extension_module_shows_nothing_of_the_libraries_inside() -> None:
    if shutil.which("nm") is None:
        pytest.skip("no nm (binutils)")
    command = ["nm", "-D", "--defined-only", _core.__file__]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert re.findall(r" T (\w+)", run.stdout) == ["PyInit__core"]


def test_help_shows_how_to_begin() -> None:
    text = pydoc.plain(pydoc.render_doc(tcpx))
    for word in ("Endpoint", "Connection", "Slot", "advertise", "connect", "PeerGone", "import numpy as np, tcpx"):
        assert word in text
    for name in tcpx.__all__:
        assert getattr(tcpx, name).__doc__ or name == "CURRENT", name


def test_importing_it_brings_no_other_package() -> None:
    program = "import sys; before = set(sys.modules); import tcpx; print(*sorted(set(sys.modules) - before))"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    top = {name.partition(".")[0] for name in run.stdout.split()}
    assert top - set(sys.stdlib_module_names) == {"tcpx"}


def imports(module: str) -> Iterator[tuple[str, str]]:
    """The imports of a module from the package, anywhere in it: modules, each with the name that is taken from it, if any."""
    for node in ast.walk(ast.parse(MODULES[module].read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names if alias.name in MODULES)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(module.split(".")[: -node.level] if node.level else [])
            base = ".".join(filter(None, (base, node.module)))
            for alias in node.names:
                below = f"{base}.{alias.name}"
                if below in MODULES or below == "tcpx._core":
                    yield below, ""
                elif base.partition(".")[0] == "tcpx":
                    yield (base if base in MODULES else f"{base}.__init__"), alias.name


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in FOREIGN


def test_no_module_uses_what_is_private_to_another() -> None:
    for module, file in MODULES.items():
        assert not [f"{other}.{name}" for other, name in imports(module) if is_private(name)], module
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Attribute) and is_private(node.attr):
                assert ast.unparse(node.value) in ("self", "cls"), f"{module}, line {node.lineno}: {ast.unparse(node)}"


def test_imports_have_no_circle() -> None:
    assert ("tcpx.errors", "invalid") in imports("tcpx.buffers")
    try:
        TopologicalSorter({module: {other for other, _ in imports(module)} for module in MODULES}).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))
