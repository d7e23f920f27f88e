# Two commands do everything for a newcomer: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test check faults bench bench-peers docs format clean

demo: $(VENV)/.installed
	@$(BIN)/paraval demo

test: check
	$(BIN)/python -m pytest

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

faults: $(VENV)/.dev
	$(BIN)/python -m pytest tests/faults -m faults -o timeout=3600

bench: $(VENV)/.dev
	$(BIN)/python bench/engine.py
	$(BIN)/python bench/models.py

# Each peer has an environment of its own. One that cannot be made is left out, and that is said.
PEERS := inspect-ai pydantic-evals
bench-peers: $(VENV)/.dev $(PEERS:%=bench/peers/.venvs/%/.installed)
	@cd bench && $(CURDIR)/$(BIN)/python -m peers.compare

bench/peers/.venvs/%/.installed: bench/peers/%.txt
	@echo "Setting up $(@D) (once) ..."
	@rm -f $@; $(PYTHON) -m venv $(@D) && \
		$(@D)/bin/python -m pip install --quiet --disable-pip-version-check -r $< && touch $@ || \
		echo "$(@D) could not be made: $* will not be measured"

docs: $(VENV)/.dev
	$(BIN)/python docs/generate.py

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) bench/peers/.venvs build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(VENV)/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@$(BIN)/python -c 'import pip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
		{ rm -rf $(VENV); $(PYTHON) -m venv $(VENV); }
	@echo "Setting up $(VENV) (once) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.installed
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@
