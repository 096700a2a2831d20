# make demo     install into .venv and run the main job on a built-in default
# make test     linters, types, import contracts, the test suite
# make test-core  the tests of the core alone: of flows and their training, without tables and what is above them
# make docs     the documentation, into site/
# make oldest   the test suite on the oldest torch that pyproject.toml promises, in .venv-oldest
# make page     format and types of the page's JavaScript, by npm (a part of make test)
# make soak     what takes longer: adversarial sweeps, fuzzing, attacks (some: make soak SOAK="kills --kills 2000")
# make wheel    source archive, platform wheel and pure wheel, into dist/, each tried in an empty environment
# make sanitize  the C kernels under the address and undefined-behaviour sanitizers
# make clean    remove what the above made

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
# Two workers, one thread each: the suite is many small tensors, which more threads only slow down.
PYTEST := OMP_NUM_THREADS=1 MPLBACKEND=Agg $(BIN)/pytest -n 2 --dist worksteal

# Keep bytecode: the tests start about a hundred processes, and importing torch without bytecode takes twice as long.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-core oldest docs soak wheel sanitize lint types contracts page unit clean

demo: $(STAMP)
	MPLBACKEND=Agg $(BIN)/python examples/portrait.py

# The type checker takes one core for most of a minute, so it runs beside the tests. The short checks run before.
test: $(STAMP)
	@$(MAKE) --no-print-directory -j2 lint contracts page
	@$(MAKE) --no-print-directory -j2 types unit

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

contracts: $(STAMP)
	$(BIN)/lint-imports

# Formatting and types of the modules of cubicflow explore's page. The page itself needs neither npm nor a build.
page:
	@if command -v npm >/dev/null && $(MAKE) --no-print-directory node_modules/.package-lock.json; then \
	  npm run --silent check; \
	else \
	  echo "without npm and its registry, the modules of the page are not checked"; test -z "$$CI"; \
	fi

node_modules/.package-lock.json: package.json package-lock.json
	@npm ci --silent --no-fund --no-audit

# The sweeps of test_soak_*.py are 4,000 tests that this target would only collect and leave out.
unit: $(STAMP)
	$(PYTEST) -q -m "not soak" --ignore-glob='*/test_soak_*.py'

# The core: what trains a flow on rows of numbers. Its tests cannot import the packages above it.
CORE := splines nets distributions transforms flows data training accel

test-core: $(STAMP)
	$(PYTEST) -q -m "not soak" -p tests.helpers.core_only --ignore-glob='*/test_soak_*.py' \
	  $(CORE:%=src/cubicflow/%) $(CORE:%=tests/%) tests/core

# The interpreter of the Triton that comes with this torch needs NumPy before 2.4.
OLDEST := torch==2.8.0 'numpy<2.4'

oldest:
	$(MAKE) --no-print-directory VENV=.venv-oldest .venv-oldest/.installed
	.venv-oldest/bin/pip install --quiet --disable-pip-version-check $(OLDEST)
	$(MAKE) --no-print-directory VENV=.venv-oldest unit

soak: $(STAMP)
	$(PYTEST) -q -m "soak or hypothesis" --hypothesis-profile=search
	OMP_NUM_THREADS=1 MPLBACKEND=Agg $(BIN)/python -m tests.soak $(SOAK)
	@if $(CAN_SANITIZE); then $(MAKE) --no-print-directory sanitize; else echo "$(CC) has no sanitizers: left out"; fi

# A release is built by tools known by their bytes, and tried where nothing else is installed. Without a C compiler both
# wheels are the pure one.
wheel:
	rm -rf dist build/wheel build/lib build/bdist* src/*.egg-info
	$(PYTHON) -m venv build/wheel/builder
	build/wheel/builder/bin/pip install --quiet --disable-pip-version-check --require-hashes -r build-constraints.txt
	build/wheel/builder/bin/python -m build --no-isolation
	CUBICFLOW_PURE=1 build/wheel/builder/bin/python -m build --no-isolation --wheel
	$(PYTHON) -m venv build/wheel/empty
	set -e; for wheel in dist/*.whl; do \
	  build/wheel/empty/bin/pip install --quiet --disable-pip-version-check -c constraints.txt --force-reinstall --no-deps $$wheel; \
	  build/wheel/empty/bin/pip install --quiet --disable-pip-version-check -c constraints.txt $$wheel; \
	  build/wheel/empty/bin/python tests/wheel/empty_environment.py $$(case $$wheel in *-any.whl) echo --pure;; esac); \
	done

# A build of its own, which only this run loads; the sanitizers' runtimes have to be there before Python is.
SANITIZERS := -O1 -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
CAN_SANITIZE = echo 'int main(void) { return 0; }' | $(CC) $(SANITIZERS) -x c - -o /dev/null 2>/dev/null
SANITIZED := build/sanitize/cubicflow/splines/backends/native/libcubicflow.so

sanitize: $(STAMP)
	@$(CAN_SANITIZE) || { echo "$(CC) cannot build with $(SANITIZERS); install its libasan and libubsan, or name another: make sanitize CC=gcc"; exit 1; }
	rm -rf build/sanitize
	CUBICFLOW_CFLAGS="$(SANITIZERS)" LDFLAGS="$(SANITIZERS)" $(BIN)/python setup.py -q build_ext --build-lib build/sanitize --build-temp build/sanitize/objects
	@test -f $(SANITIZED) || { echo "the sanitizer build failed, see above"; exit 1; }
	LD_PRELOAD="$$($(CC) -print-file-name=libasan.so) $$($(CC) -print-file-name=libubsan.so)" \
	ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 CUBICFLOW_SANITIZED=$(abspath $(SANITIZED)) \
	OMP_NUM_THREADS=1 $(BIN)/pytest -q -n 0 -p no:cacheprovider tests/splines/native -m "not soak"

docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

NATIVE := $(wildcard src/cubicflow/splines/backends/native/csrc/*)

# No bytecode at installation: compiling every module takes as long as the rest. Python compiles a module at its first import.
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --no-compile

# Two processes install half of the work each, one process per core. A process fails if one of its packages has no wheel
# for this platform; the last line then installs what is missing. normflows is used by benchmarks only.
$(STAMP): pyproject.toml constraints.txt setup.py $(NATIVE)
	$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(None if v >= (3, 11) else f"cubicflow needs Python 3.11 or newer, found {v[0]}.{v[1]}; try: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	-$(PIP) --no-deps $$(grep -i '^[a-p]' constraints.txt | grep -v '^normflows') & \
	$(PIP) --no-deps $$(grep -i '^[q-z]' constraints.txt); wait $$!
	$(PIP) -c constraints.txt -e '.[dev]'
	touch $(STAMP)

clean:
	rm -rf $(VENV) .venv-oldest node_modules build dist demo site .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache src/*.egg-info
