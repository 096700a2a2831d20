"""Builds the native spline kernel, src/cubicflow/splines/backends/native/csrc, into a plain shared library.

Everything else is in pyproject.toml. The library has a C interface and is loaded with ctypes: it knows neither Python's
nor torch's headers, so one build serves every version of both. Without a working compiler, or with CUBICFLOW_PURE=1,
the install succeeds and leaves the library out: the wheel is then tagged py3-none-any, and the first spline says so.
"""

from __future__ import annotations

import os
import platform
import runpy
import sys
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

PURE = os.environ.get("CUBICFLOW_PURE", "") not in ("", "0")  # a wheel for every platform, whatever compiler is there

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

    def run(self) -> None:
        for ext in self.extensions:  # one of an earlier build must not stand in for one that fails now
            Path(self.get_ext_fullpath(ext.name)).unlink(missing_ok=True)
        if not PURE:
            super().run()

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


class Wheel(bdist_wheel):
    """With the library it is tied to a platform and to no version of Python; without, to neither."""

    def run(self) -> None:
        self.run_command("build")
        build = self.get_finalized_command("build_ext")
        if not all(Path(build.get_ext_fullpath(ext.name)).exists() for ext in build.extensions):
            self.distribution.ext_modules = None
            self.root_is_pure = True
            why = "CUBICFLOW_PURE is set" if PURE else "there is no C compiler that works, see above"
            sys.stderr.write(
                f"cubicflow: this is the pure wheel, without the native library ({why}): splines will run many times "
                "slower on the CPU; put gcc or clang on PATH and build again\n"
            )
        super().run()

    def get_tag(self) -> tuple[str, str, str]:
        *_, platform_tag = super().get_tag()
        return "py3", "none", "any" if self.root_is_pure else platform_tag


setup(
    ext_modules=[
        Extension(
            f"{PACKAGE}.libcubicflow",
            sources=[str(SOURCES / "api.c"), str(SOURCES / "kernel.c")],
            depends=[str(header) for header in sorted(SOURCES.glob("*.h"))],
            optional=True,
        )
    ],
    cmdclass={"build_ext": BuildLibrary, "bdist_wheel": Wheel},
)
