# All commands of the project. `make demo` and `make test` need Python 3.11+, make and a package index.
# Only `make test-needs`, `make lab` and `make image` install system packages; they need root on Debian.
PYTHON ?= python3
WORKERS ?= 4
SECONDS ?= 5
BIN := .venv/bin
UV := $(or $(shell command -v uv 2>/dev/null),$(BIN)/uv)
INSTALL := sh scripts/install.sh $(UV) pip install --quiet --python $(BIN)/python
PYTEST := $(BIN)/pytest $(if $(filter 1,$(NO_SKIPS)),--no-skips)
PARALLEL := -n $(WORKERS) --dist loadfile --no-loadscope-reorder
COMPILE := $(UV) pip compile --quiet --upgrade --universal --generate-hashes --no-header --python-version 3.11
export UV_PYTHON_DOWNLOADS := never
# The target of the edit links in the documentation.
export REPOSITORY ?= $(patsubst %.git,%,$(filter https://%,$(shell git remote get-url origin 2>/dev/null)))
# If it were set, each of the thousands of processes of a test run would compile everything again.
unexport PYTHONDONTWRITEBYTECODE

# `make test` runs the files of these folders, and these files; `make test-slow` runs all others.
FAST := agent/% contracts/% executors/% feed/% files/% front/% fuzz/% gates/% host_worker/% http/% notifications/% operations/% \
  outbound/% scheduler/% simulation/% storage/% unit/% wording/% conformance/test_golden_documents.py \
  conformance/kit/test_grades.py conformance/kit/test_reports.py e2e/test_rollout.py e2e/test_service.py properties/test_feed.py
NOT_FAST := executors/test_ssh.py http/control/test_openapi.py http/metadata/test_crowd.py http/metadata/test_replay.py \
  simulation/test_more_seeds.py storage/test_postgres_schema.py
TESTS := $(sort $(shell find tests -name 'test_*.py' -not -path 'tests/image/*' -not -path 'tests/lab/*'))
FAST_TESTS := $(filter-out $(NOT_FAST:%=tests/%),$(filter $(FAST:%=tests/%),$(TESTS)))
SLOW_TESTS := $(filter-out $(FAST_TESTS),$(TESTS))
folders = $(sort $(foreach each,$(1),$(word 2,$(subst /, ,$(each)))))
# Full branch coverage depends on these tests; NOT_COVERING are tests that measure time.
COVERING := bootstrap/test_admin_token.py bootstrap/test_presence.py cli/test_output.py cli/test_settings.py contracts \
  executors/test_watcher.py files front gates \
  http/control/test_fleet.py http/control/test_hosts.py http/control/test_origins.py http/control/test_scenarios.py \
  http/control/test_server.py http/control/test_tasks.py http/control/test_turns.py \
  http/metadata notifications operations outbound properties/test_controls.py scheduler storage unit wording
NOT_COVERING := --ignore=tests/http/metadata/test_crowd.py \
  --deselect=tests/http/metadata/test_board.py::test_fleet_of_100_000_is_learned_at_once

.DELETE_ON_ERROR:
.PHONY: help demo test test-slow test-needs quick coverage mutants fuzz simulate simulate-mutants lab image check format bench soak docs reference lock clean

help:  ## list the commands
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20

demo: .venv/.runtime  ## run the demo
	@$(BIN)/forewarn demo

test: .venv/.dev  ## run the tests that need only Python: 2 minutes
	@$(PYTEST) $(PARALLEL) -q $(FAST_TESTS) $(ARGS)
	@echo "Not run: $(filter-out $(call folders,$(FAST_TESTS)),$(call folders,$(SLOW_TESTS))), and parts of" \
	  "$(filter $(call folders,$(FAST_TESTS)),$(call folders,$(SLOW_TESTS))). Run them with: make test-slow"

test-slow: .venv/.dev  ## run all other tests: 8 minutes
	@$(PYTEST) $(PARALLEL) -q --repeat $(SLOW_TESTS) $(ARGS)

test-needs: .venv/.dev  ## install programs for slow tests; needs root on Debian
	@sh scripts/test_needs.sh

quick: .venv/.dev  ## run the tests of the rules: 20 seconds
	@$(PYTEST) $(PARALLEL) -q tests/unit tests/operations tests/scheduler $(ARGS)

coverage: .venv/.dev  ## check that the rules have full branch coverage
	@$(PYTEST) $(PARALLEL) -q --cov --cov-report= $(COVERING:%=tests/%) $(NOT_COVERING) $(ARGS)
	@$(BIN)/python scripts/check_coverage.py

mutants: .venv/.dev  ## plant small bugs that tests must find
	@$(BIN)/python scripts/mutants.py $(ARGS)

fuzz: .venv/.fuzz  ## fuzz the parsers; SECONDS for each, TARGET for one
	@nice $(BIN)/python -m tests.fuzz.run --seconds $(SECONDS) $(TARGET)

simulate: .venv/.dev  ## simulate a service under SEED, or under SEEDS seeds, for HOURS hours
	@$(BIN)/python -m tests.simulation $(if $(SEED),--seed $(SEED)) $(if $(SEEDS),--seeds $(SEEDS)) \
	  $(if $(HOURS),--hours $(HOURS)) $(ARGS)

simulate-mutants: .venv/.dev  ## plant small bugs that the simulation must find
	@$(BIN)/python scripts/simulate_mutants.py $(ARGS)

lab: .venv/.dev  ## test with real virtual machines; needs root on Debian
	@sh scripts/lab_needs.sh
	@$(PYTEST) --timeout 1800 tests/lab --no-skips

image: .venv/.dev  ## build and test the container image, from BASE; needs root on Debian
	@sh scripts/image_needs.sh
	@sh scripts/build_image.sh $(BASE)
	@$(PYTEST) --timeout 1800 tests/image --no-skips

check: .venv/.dev  ## check format, lint, types, layers, wording, names
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy --no-error-summary
	@report=$$($(BIN)/lint-imports 2>&1) || { echo "$$report"; exit 1; }
	@$(BIN)/codespell src docs *.md
	@$(BIN)/python scripts/check_wording.py
	@$(BIN)/python scripts/check_names.py
	@$(BIN)/python scripts/mutants.py --check
	@$(BIN)/python scripts/simulate_mutants.py --check

format: .venv/.dev  ## format the code
	@$(BIN)/ruff format --quiet .
	@$(BIN)/ruff check --quiet --fix-only .

bench: .venv/.dev  ## run the benchmarks
	@$(BIN)/python bench/core.py
	@$(BIN)/python bench/store.py
	@$(BIN)/python bench/replicas.py
	@$(BIN)/python bench/fleet.py
	@$(BIN)/python bench/polls.py
	@$(BIN)/python bench/attacks.py
	@$(BIN)/python bench/console.py
	@$(BIN)/python bench/emulator.py
	@$(BIN)/python bench/rollout.py
	@$(BIN)/python bench/scale.py
	@$(BIN)/python bench/fleet_changes.py
	@$(BIN)/python bench/agent.py
	@$(BIN)/python bench/cli.py

soak: .venv/.dev  ## run the long tests: kills, failovers, leaks, generated input
	@$(PYTEST) --timeout 0 tests/e2e/test_crash.py --kills 200
	@$(PYTEST) --timeout 0 tests/e2e/agent/test_many_kills.py --agent-kills 300
	@$(PYTEST) --timeout 0 tests/testing/test_leaks.py --emulators 1000
	@$(PYTEST) --timeout 0 tests/e2e/soak_failover.py tests/e2e/soak_histories.py tests/e2e/soak_keepalived.py \
	  tests/e2e/soak_leader_losses.py tests/e2e/soak_relay.py
	@$(PYTEST) --timeout 0 tests/conformance/kit/soak_examples.py
	@$(PYTEST) --timeout 0 tests/properties tests/http/control/test_openapi.py --hypothesis-profile=soak

reference: .venv/.dev  ## update the generated parts of docs/
	@$(BIN)/python scripts/generate_reference.py

docs: .venv/.dev  ## build the documentation in site/, and check its links
	@rm -rf site
	@$(BIN)/zensical build --strict
	@$(BIN)/python scripts/check_site.py

lock: .venv/.dev  ## pin the newest versions of all dependencies
	@$(COMPILE) --extra server pyproject.toml --output-file requirements/runtime.txt
	@$(COMPILE) --extra server --extra postgres --group dev pyproject.toml --output-file requirements/dev.txt
	@echo 'libvirt-python>=9' | $(COMPILE) - --output-file requirements/libvirt.txt
	@echo 'apprise>=2' | $(COMPILE) - --constraints requirements/dev.txt --output-file requirements/notify.txt
	@echo 'psycopg[binary]>=3.2' | $(COMPILE) - --constraints requirements/dev.txt --output-file requirements/postgres.txt
	@echo 'atheris>=3,<3.1' | $(COMPILE) - --output-file requirements/fuzz.txt
	@echo hatchling | $(COMPILE) - --output-file requirements/build.txt
	@echo uv | $(COMPILE) - --output-file requirements/uv.txt
	@echo ai4s-jobq | $(COMPILE) - --output-file tests/conformance/clients/ai4s-jobq.txt
	@echo testcontainers | $(COMPILE) - --output-file tests/image/testcontainers.txt
	@echo openapi-python-client | $(COMPILE) - --output-file tests/e2e/openapi-python-client.txt

clean:  ## remove everything that these commands created
	rm -rf .venv .lab dist site .cache .coverage .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache

.venv/.runtime: .venv/bin/python requirements/runtime.txt requirements/build.txt pyproject.toml
	@$(INSTALL) --require-hashes --requirements requirements/runtime.txt
	@$(INSTALL) --no-deps --build-constraints requirements/build.txt --editable .
	@touch $@

.venv/.dev: .venv/.runtime requirements/dev.txt
	@$(INSTALL) --require-hashes --requirements requirements/dev.txt
	@touch $@

.venv/.fuzz: .venv/.dev requirements/fuzz.txt
	@$(INSTALL) --require-hashes --requirements requirements/fuzz.txt
	@touch $@

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "forewarn needs Python 3.11 or newer; choose another with: make PYTHON=python3.12 ..." >&2; exit 1; }
	@echo "Creating .venv (once) ..."
	@$(PYTHON) -m venv --clear .venv || \
	  { echo "python3 cannot create a virtual environment; on Debian, run: apt-get install python3-venv" >&2; exit 1; }
	@test "$(UV)" != "$(BIN)/uv" || sh scripts/install.sh $(BIN)/python -m pip install --quiet --disable-pip-version-check \
	  --require-hashes --requirement requirements/uv.txt
