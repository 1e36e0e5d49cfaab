# Every command of the project. `make demo` and `make test` need Python 3.11+, git and make, nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The tests start some hundred processes, which compile nothing that was compiled before.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: check-gateway check-others test-compiled test-plain test-processes test-replicas test-spark test-spark-versions test-long test-types compile demo test check format bench bench-native bench-spark bench-large bench-store soak clean install install-test
.DEFAULT_GOAL := help

help:  ## list the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 15

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit("Penstock needs Python 3.11 or newer, this is %s" % sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV) || (apt-get update -qq && apt-get install -y -qq python3-venv && $(PYTHON) -m venv $(VENV))
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'

$(VENV)/.core: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --disable-pip-version-check -e '.[events]'
	@touch $@

$(VENV)/.test: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[events]' --group test --group check
	@touch $(VENV)/.core $@

# Tests with mosquitto's clients, a real file system, several hosts and a browser are skipped where these cannot be installed.
$(VENV)/.system: $(BIN)/python
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  (apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq mosquitto-clients xfsprogs iproute2 chromium chromium-driver) \
	  >/dev/null 2>&1 || echo 'mosquitto-clients, xfsprogs, iproute2 and chromium could not be installed; their tests are skipped'; fi
	@touch $@

# MQTT.js is one of the clients, codecs are compared with npm's mqtt-packet and sparkplug-payload, and pages of the console are checked by
# axe-core, where there is Node (with it come the files that tests/house/vendored.py copies); elsewhere those
# tests are skipped.
$(VENV)/.node: $(BIN)/python Makefile
	@if command -v node >/dev/null && command -v npm >/dev/null; then \
	  npm install --prefix .node --no-audit --no-fund --silent mqtt@5 mqtt-packet@9 sparkplug-payload@1 axe-core@4 htmx.org@4.0.1 uplot@1.6.32 @picocss/pico@2.1.1 \
	  || echo 'MQTT.js, mqtt-packet, sparkplug-payload and axe-core could not be installed; their tests are skipped'; fi
	@touch $@

$(VENV)/.spark: $(VENV)/.core
	@echo 'installing Spark and Java: 450 MB, once'
	$(BIN)/python -m pip install --disable-pip-version-check -e '.[spark]'
	@touch $@


install: $(VENV)/.core $(VENV)/.spark  ## install everything a user needs into .venv
install-test: install $(VENV)/.test $(VENV)/.system $(VENV)/.node

demo: $(VENV)/.core $(VENV)/.spark  ## the whole system with simulated devices, live in this terminal
	@$(BIN)/penstock up --demo --data .penstock/demo

# A copy of the tree with the hot modules compiled; the tree itself never has a compiled file.
SOURCES := $(VENV)/.test hatch_build.py pyproject.toml $(shell find broker events gateway loadtest namesrv node penstock remoting topicmap -name '*.py')
.compiled/.made: $(SOURCES)
	$(BIN)/python hatch_build.py .compiled
	@[ ! -d .compiled ] || touch $@

# The same for the tests: not optimised, which takes a third of the time, and with the C code's own assertions.
.checked/.made: $(SOURCES)
	$(BIN)/python hatch_build.py --checked .checked
	@[ ! -d .checked ] || touch $@

compile: .compiled/.made  ## compile the hot modules into .compiled (about 2 minutes)

format: $(VENV)/.test  ## rewrite the code in the house's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix-only .

check: $(VENV)/.test $(VENV)/.spark  ## format, lint, types, import contracts, unit tests (one to two minutes)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	@$(MAKE) --no-print-directory -j2 -k --output-sync=target check-gateway check-others

QUICK := -q -p no:cacheprovider -m 'not endtoend and not spark and not slow and not long'
HALF := tests/gateway tests/conformance
check-gateway:
	@$(BIN)/pytest $(QUICK) $(HALF)

check-others:
	@$(BIN)/pytest $(QUICK) $(patsubst %,--ignore=%,$(HALF))

test: $(VENV)/.test  ## install what the tests need and run all but the long ones (about 18 minutes on two cores)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	@$(MAKE) --no-print-directory -j3 -k --output-sync=target .checked/.made install-test test-types
	@failed=0; for parts in test-compiled "-j2 -k --output-sync=target test-plain test-spark" test-processes test-replicas; \
	do $(MAKE) --no-print-directory $$parts || failed=1; done; exit $$failed

# The parts of `make test`, one after the other but for Spark, whose one session leaves a core free; each with as many workers
# as two cores serve well: a test of processes must not wait for a core that other parts have. Markers say what belongs to
# which part (pyproject.toml).
PYTEST := $(CURDIR)/$(BIN)/pytest -p no:cacheprovider -q
UNITS := not endtoend and not spark and not replicas and not long
test-types: $(VENV)/.test $(VENV)/.spark
	$(BIN)/mypy
	$(BIN)/lint-imports

# A unit test runs once: with the hot modules compiled, which is the stricter run; where there is no C compiler, plain.
test-compiled: .checked/.made  ## the unit tests with the hot modules compiled (about 5 minutes)
	@if [ -d .checked ]; then cd .checked && export PYTHONPATH=$$PWD; else echo 'no C compiler: the compiled modules are not tested'; fi; \
	$(PYTEST) -n 2 --dist worksteal -m '$(UNITS) and not interpreted'

test-plain: $(VENV)/.test  ## the simulation, the house, and what changes code that runs (about 3 minutes)
	@$(PYTEST) -n 2 --dist worksteal -m '$(UNITS) and interpreted'

test-processes: $(VENV)/.test
	@$(PYTEST) -n 3 --dist loadfile --no-loadscope-reorder -m 'endtoend and not spark and not replicas and not long'

# Named, for to collect all tests takes as long as many of these (tests/penstock/spark/test_make.py).
SPARK_TESTS := tests/spark tests/penstock/spark tests/penstock/telemetry tests/loadtest/spark \
  tests/endtoend/test_demo.py tests/endtoend/test_spine.py
test-spark: $(VENV)/.test
	@$(PYTEST) --durations=10 -m 'spark and not replicas and not long' $(SPARK_TESTS)

# Nodes of one group must hear of each other within a second.
test-replicas: $(VENV)/.test
	@$(PYTEST) -n 2 --dist loadfile --no-loadscope-reorder -m 'replicas and not long' tests/endtoend

test-long: $(VENV)/.test  ## proofs of minutes, which `make test` leaves out, one after the other (about 15 minutes)
	@$(PYTEST) -m long

test-spark-versions: install-test  ## Spark's tests on pyspark 4.0 to 4.2, each in an environment of its own (about 25 minutes, 3 GB)
	@$(BIN)/python -m tests.spark.releases

bench: compile  ## side by side with mosquitto and amqtt, plain and compiled, interleaved, with goals, the store, events and copies (about 17 minutes)
	$(BIN)/python -m loadtest bench
	$(BIN)/python -m loadtest store
	$(BIN)/python -m loadtest events
	$(BIN)/python -m loadtest replica
	@[ ! -d .compiled/loadtest ] || (cd .compiled && PYTHONPATH=$(CURDIR)/.compiled $(CURDIR)/$(BIN)/python -m loadtest store)

bench-native: compile  ## what programs send and consume, plain and compiled, and beside RocketMQ where there is Java, with goals (about 5 minutes)
	$(BIN)/python -m loadtest native

bench-spark: compile $(VENV)/.spark  ## what Spark reads and writes on two cores, beside Kafka's source where there is Maven, with goals (about 15 minutes)
	$(BIN)/python -m loadtest spark

bench-large: compile  ## 1,000,000 messages that wait for 10,000 sessions, their reconnect, 100,000 filters: memory and seconds (about 10 minutes)
	$(BIN)/python -m loadtest bench --full --scenarios backlog reconnect filters

bench-store: $(VENV)/.test  ## the store by itself, with 100,000 queues and recoveries of 1 and 10 GiB (about 3 minutes, 14 GB)
	$(BIN)/python -m loadtest store --long

# Models that Hypothesis drives: in `make test` through the same examples every time, in `make soak` through new ones.
MODELS := tests/gateway/delivery/test_positions_model.py tests/gateway/sessions/test_session.py tests/gateway/delivery/test_share_feed.py \
  tests/broker/shares/test_leases.py tests/namesrv/test_registry.py tests/properties/test_topicmap.py tests/conformance/test_any_sequence.py

wheels:  ## build the plain and the compiled wheel, and run each in a fresh environment (about 4 minutes)
	packaging/wheels.sh

soak: install-test test-long  ## the long proofs: 500 kill -9 and 300 power-loss cycles, a full disk, a million damaged packets and remoting frames, 5 minutes of chaos, 100,000 sends through 30 kill -9, pages of 100,000 topics and sessions, two simulated hours, 100 seeds of each simulation, 100,000 groups of copies, 100 nodes of a group killed or stopped and 40 without power, under load, a million delayed messages, 2,000 batches of Spark (about an hour)
	for run in $$(seq 20); do PENSTOCK_SEARCH=1 $(BIN)/pytest -q $(MODELS) || exit 1; done
	for run in $$(seq 10); do PENSTOCK_SEARCH=1 $(BIN)/pytest -q -m '$(UNITS) and not interpreted' tests/gateway tests/broker tests/penstock tests/events || exit 1; done
	PENSTOCK_FUZZ_PACKETS=1000000 PENSTOCK_FUZZ_SEQUENCES=2000 $(BIN)/pytest -q --timeout=0 tests/conformance/test_flood.py \
	  tests/conformance/test_any_sequence.py tests/gateway/mqtt
	PENSTOCK_FUZZ_FRAMES=1000000 $(BIN)/pytest -q --timeout=0 tests/remoting/test_server.py -k mutated
	PENSTOCK_CONNECTIONS=400 $(BIN)/pytest -q tests/endtoend/test_native_attacks.py
	PENSTOCK_CHAOS_S=300 $(BIN)/pytest -q tests/endtoend/test_chaos.py
	PENSTOCK_LISTED=100000 $(BIN)/pytest -q --timeout=0 tests/console/test_many.py
	PENSTOCK_MESSAGES=10000 $(BIN)/pytest -q --timeout=0 tests/endtoend/test_spine.py
	PENSTOCK_HOSTILE_CONNECTIONS=600 $(BIN)/pytest -q --timeout=0 tests/endtoend/test_hostile_devices.py
	PENSTOCK_SENDS=100000 $(BIN)/pytest -q --timeout=0 tests/endtoend/test_idempotent_producer.py
	PENSTOCK_SEEDS=100 $(BIN)/pytest -q --timeout=0 tests/simulation tests/gateway/delivery/test_owed.py tests/gateway/sessions/test_overlap_model.py -m 'not long'
	PENSTOCK_SEEDS=100000 $(BIN)/pytest -q --timeout=0 tests/simulation/test_rafts.py -k worlds
	PENSTOCK_FAILOVERS=100 PENSTOCK_SPARK_FOLLOWS=1 $(BIN)/pytest -q --timeout=0 tests/endtoend/test_failover.py -k killed_and_stand
	PENSTOCK_POWER_LOSSES=20 $(BIN)/pytest -q --timeout=0 tests/endtoend/test_failover_power.py
	PENSTOCK_SIMULATED_S=7200 $(BIN)/pytest -q --timeout=0 tests/simulation/test_messaging.py -k holds_for_long
	$(BIN)/python -m loadtest soak
	$(BIN)/python -m loadtest timers
	$(BIN)/python -m loadtest spark --scenarios soak --count 2000 --batches 2000

clean:  ## remove what make made; data folders stay
	rm -rf $(VENV) .node .compiled .checked build/rocketmq build/rocketmq-clients .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
