# Two commands do everything on a fresh machine: `make demo` and `make test`. Both make .venv if it is not there.

PYTHON ?= python3
VENV ?= .venv
# Used where $(PYTHON) has no torch: a torch that it can import is reused. TORCH= leaves torch, and the probe, out.
# Elsewhere than on a host prepared for it, a torch from PyPI brings CUDA with it: several gigabytes.
TORCH ?= torch==2.13.0
# Where `make vllm-real` keeps its vLLM: it needs a torch of its own.
VLLM_VENV ?= .vllm-venv
ARGS ?=

BIN := $(VENV)/bin

.PHONY: demo test lint kills interleavings properties quiet-week faults pictures vllm-real docs clean

demo: $(VENV)/demo.done ## the whole daemon on a recorded server; ARGS="--speed 10" plays faster
	@$(BIN)/solpi-exporter demo $(ARGS)

test: $(VENV)/test.done lint ## lint, types and all tests
	$(BIN)/pytest $(ARGS)

lint: $(VENV)/test.done
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

kills: $(VENV)/test.done ## each line once, over 2,000 daemons that are killed
	SOLPI_KILLS=2000 $(BIN)/pytest tests/test_exactly_once.py $(ARGS)

interleavings: $(VENV)/test.done ## each line once, whatever falls between two system calls: 8,000 runs
	SOLPI_INTERLEAVINGS=4000 $(BIN)/pytest tests/follow/test_interleavings.py $(ARGS)

properties: $(VENV)/test.done ## no line makes a false reading: a million generated inputs
	SOLPI_EXAMPLES=40000 $(BIN)/pytest tests/engine/dialects/test_properties.py $(ARGS)

quiet-week: $(VENV)/test.done ## eight days in which nothing is wrong page nobody: seven minutes, half with ARGS="--every 2"
	$(BIN)/python -m benchmarks.quiet_week $(ARGS)

faults: $(VENV)/test.done ## 26 faults in real daemons, each its own alert in time: three minutes; also needs stress-ng
	$(BIN)/python -m benchmarks.fault_matrix $(ARGS)

pictures: $(VENV)/test.done grafana/render/node_modules ## the dashboards, drawn with Grafana's components: seven minutes
	$(BIN)/python -m benchmarks.pictures $(ARGS)

grafana/render/node_modules:
	cd grafana/render && npm ci --legacy-peer-deps --ignore-scripts --no-audit --no-fund && node node_modules/esbuild/install.js

vllm-real: $(VENV)/test.done $(VLLM_VENV)/vllm.done ## beside a real vLLM on the CPU, 2.5 GB: two minutes
	$(BIN)/python -m benchmarks.vllm_real --python $(VLLM_VENV)/bin/python $(ARGS)

$(VLLM_VENV)/vllm.done:
	$(PYTHON) -m benchmarks.vllm_install $(VLLM_VENV)
	@touch $@

docs: $(VENV)/test.done ## write what is generated
	{ echo '# Metrics'; $(BIN)/solpi-exporter metrics; } > docs/metrics.md
	$(BIN)/python -m tests.engine.engines_table
	$(BIN)/solpi-exporter rules --out grafana/alerts
	$(BIN)/solpi-exporter dashboards --out grafana/dashboards
	$(BIN)/pytest -q tests/service/test_unit.py --update-golden

clean:
	rm -rf grafana/render/node_modules grafana/render/build $(VENV) build dist *.egg-info

# A torch that $(PYTHON) can import is reused by putting its folder at the end of the environment's path, and only
# after everything else is installed: pip would take what else lies there for installed.
HOST_TORCH = $$($(PYTHON) -c 'import os, torch; print(os.path.dirname(os.path.dirname(torch.__file__)))' 2>/dev/null)
HOST_PATH = "$$($(BIN)/python -c 'import site; print(site.getsitepackages()[0])')/host-torch.pth"

define install
	@rm -f $(HOST_PATH)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable $(1)
	@if host="$(HOST_TORCH)"; then echo "reusing the torch in $$host"; echo "$$host" > $(HOST_PATH); fi
	@touch $@
endef

$(VENV)/torch.done:
	$(PYTHON) -m venv $(VENV)
	@if ! $(PYTHON) -c 'import torch' 2>/dev/null && [ -n "$(TORCH)" ]; then \
		echo "installing $(TORCH)"; $(BIN)/pip install --quiet --disable-pip-version-check "$(TORCH)"; \
	fi
	@touch $@

$(VENV)/demo.done: $(VENV)/torch.done pyproject.toml
	$(call install,.)

$(VENV)/test.done: $(VENV)/torch.done pyproject.toml
	$(call install,'.[test]')
