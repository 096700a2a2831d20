"""Builds the native spline kernel, src/cubicflow/splines/backends/native/csrc, into a plain shared library.

Everything else is in pyproject.toml. The library has a C interface and is loaded with ctypes: it knows neither Python's
nor torch's headers, so one build serves every version of both. Without a working compiler the install succeeds and
leaves it out.
"""

from __future__ import annotations

import os
import platform
import runpy
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.errors import CCompilerError

PACKAGE = "cubicflow.splines.backends.native"
SOURCES = Path("src", *PACKAGE.split("."), "csrc")
source_hash = runpy.run_path(str(SOURCES.with_name("source_hash.py")))["source_hash"]

# No -ffast-math: the kernel needs NaN, infinities and the order of its additions. These three it does not need: errno
# from sqrt, floating-point exceptions, and a rounding between a product and its sum.
FLAGS = [
    "-O3",
    "-g0",
    "-std=gnu11",
    "-fvisibility=hidden",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=fast",
]

# For builds that are looked into, such as those of make sanitize; CFLAGS come first, so that FLAGS would undo some.
LAST_FLAGS = os.environ.get("CUBICFLOW_CFLAGS", "").split()

# name -> flags of the kernels beside the baseline's; which of them runs is decided where the library is loaded.
X86_LEVELS = {
    "avx2": ["-mavx2", "-mfma"],
    "avx512": [
        *("-mavx512f", "-mavx512dq", "-mavx512bw", "-mavx512vl", "-mavx2", "-mfma"),
        "-mprefer-vector-width=512",
    ],
}


class BuildLibrary(build_ext):
    """Compiles kernel.c once for each precision and instruction set, and links the objects with api.c."""

    def get_ext_filename(self, fullname: str) -> str:
        return str(Path(*fullname.split(".")).with_name("libcubicflow.so"))

    def build_extension(self, ext: Extension) -> None:
        levels: dict[str, list[str]] = {}
        if platform.machine().lower() in {"x86_64", "amd64"}:
            levels = {name: flags for name, flags in X86_LEVELS.items() if self._compiles(flags)}
        macros = [f"HAVE_{name.upper()}" for name in levels]
        objects = self._compile("api.c", "api", [*macros, f"SOURCE_HASH={source_hash(SOURCES)}"], [])
        for level, flags in {"": [], **levels}.items():
            for precision in ("f32", "f64"):
                name = "_".join(filter(None, ("kernel", precision, level)))
                macros = [f"KERNEL={name}", *(["DOUBLE"] if precision == "f64" else [])]
                objects += self._compile("kernel.c", name, macros, flags)
        target = Path(self.get_ext_fullpath(ext.name))
        target.parent.mkdir(parents=True, exist_ok=True)
        self.compiler.link_shared_object(objects, str(target))

    def _compile(self, source: str, name: str, macros: list[str], flags: list[str]) -> list[str]:
        defined = [(key, value or None) for key, _, value in (macro.partition("=") for macro in macros)]
        return self.compiler.compile(
            [str(SOURCES / source)],
            output_dir=str(Path(self.build_temp) / name),
            macros=defined,
            extra_postargs=[*FLAGS, *flags, *LAST_FLAGS],
            depends=[str(header) for header in sorted(SOURCES.glob("*.h"))],
        )

    def _compiles(self, flags: list[str]) -> bool:
        """Whether the compiler knows these flags. One that compiles nothing at all fails at the next step."""
        probe = Path(self.build_temp) / "probe.c"
        probe.parent.mkdir(parents=True, exist_ok=True)
        probe.write_text("int probe(void) { return 0; }\n")
        try:
            self.compiler.compile([str(probe)], output_dir=str(probe.parent), extra_postargs=flags)
        except CCompilerError:
            return False
        return True


class PlatformWheel(bdist_wheel):
    """The library is tied to a platform and to no version of Python."""

    def get_tag(self) -> tuple[str, str, str]:
        *_, platform_tag = super().get_tag()
        return "py3", "none", platform_tag


setup(
    ext_modules=[
        Extension(
            f"{PACKAGE}.libcubicflow",
            sources=[str(SOURCES / "api.c"), str(SOURCES / "kernel.c")],
            depends=[str(header) for header in sorted(SOURCES.glob("*.h"))],
            optional=True,
        )
    ],
    cmdclass={"build_ext": BuildLibrary, "bdist_wheel": PlatformWheel},
)
