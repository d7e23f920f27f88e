# Two commands do everything for a newcomer: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Without .pyc files, each worker of pytest would rewrite the assertions of all tests anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-pythons test-agents test-suites test-cluster check packages faults fuzz bench headline bench-cluster bench-peers bench-race docs format clean

demo: $(VENV)/.installed
	@$(BIN)/paraval demo -o demo.html

# Three workers, even on two processors: most tests wait for programs.
test: check packages
	$(BIN)/python -m pytest -n 3 --dist worksteal

# On every Python from 3.11 on that is on PATH or in pyenv's folder; PYTHONS="3.12 3.13" for some.
test-pythons: packages
	@$(PYTHON) tests/pythons.py $(PYTHONS)

# Real agent programs, at these versions, in a folder that git ignores; the models are simulated.
CLAUDE_CODE := 2.1.325
CODEX := 0.166.0
MCP := 2.3.0
AGENTS := .agents
AGENTS_INSTALLED := $(AGENTS)/claude-code-$(CLAUDE_CODE)-codex-$(CODEX)-mcp-$(MCP)
test-agents: $(VENV)/.dev $(AGENTS_INSTALLED)
	$(BIN)/python -m pytest tests/agents -m agents -o timeout=600 -v -rA

$(AGENTS_INSTALLED):
	@command -v npm > /dev/null || { echo "npm is needed to install the agents: see https://nodejs.org"; exit 1; }
	@echo "Installing Claude Code $(CLAUDE_CODE), Codex $(CODEX) and mcp $(MCP) into $(AGENTS) (once) ..."
	@rm -rf $(AGENTS) && mkdir $(AGENTS)
	@npm install --prefix $(AGENTS) --no-save --no-package-lock --no-audit --no-fund --loglevel=error \
		@anthropic-ai/claude-code@$(CLAUDE_CODE) @openai/codex@$(CODEX)
	@$(PYTHON) -m venv $(AGENTS)/venv
	@$(AGENTS)/venv/bin/python -m pip install --quiet --disable-pip-version-check mcp==$(MCP)
	@touch $@

# Three Ray nodes in network namespaces of this machine: it must be Linux, and you must be root.
# Two workers: most tests wait for what Ray notices.
test-cluster: $(VENV)/.cluster
	$(BIN)/python -m pytest tests/cluster -m cluster -n 2 --dist loadfile -o timeout=400 -v -rA

# Test suites of well-known packages, fetched from PyPI into a folder that git ignores.
test-suites: $(VENV)/.dev
	$(BIN)/python -m tests.suites.run

# Where they cannot be installed, the tests that need them are skipped with a message; in CI they fail.
packages:
	@tests/packages.sh bwrap bubblewrap "tests of the sandbox are skipped"
	@tests/packages.sh chromium chromium "tests of the page are skipped"
	@tests/packages.sh podman podman "tests of containers are skipped"
	@tests/packages.sh runc runc "tests of containers are skipped"
	@tests/packages.sh busybox busybox-static "tests of containers are skipped"

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

faults: $(VENV)/.dev
	$(BIN)/python -m pytest tests/faults -m faults -o timeout=3600

# Damaged and hostile files for the commands that read files of strangers; two minutes.
fuzz: $(VENV)/.dev
	$(BIN)/python tests/fuzz.py

# One table, for docs/explanation/performance.md; about 25 minutes.
bench: $(VENV)/.dev
	@$(BIN)/python bench/figures.py

# What five other programs promised, beside what is measured here; about three minutes.
headline: $(VENV)/.dev
	$(BIN)/python bench/headline.py

bench-cluster: $(VENV)/.cluster
	$(BIN)/python bench/cluster.py

# Each peer has its own environment. One that cannot be created is left out with a message.
PEERS := inspect-ai pydantic-evals promptfoo braintrust deepeval
bench-peers: $(VENV)/.dev $(PEERS:%=bench/peers/.venvs/%/.installed)
	@cd bench && $(CURDIR)/$(BIN)/python -m peers.compare

# A race beside other tools on a busy machine; about five minutes.
bench-race: $(VENV)/.dev bench/peers/.venvs/race/.installed
	@cd bench && $(CURDIR)/$(BIN)/python race_beside.py

# promptfoo needs a newer Node.js than most machines have, so npm installs that too.
bench/peers/.venvs/promptfoo/.installed: bench/peers/promptfoo.txt
	@echo "Setting up $(@D) (once; 2 GB) ..."
	@rm -rf $(@D); mkdir -p $(@D) && npm install --prefix $(@D) --no-save --no-package-lock --no-audit \
		--no-fund --loglevel=error $$(cat $<) && touch $@ || \
		echo "$(@D) could not be created: promptfoo will not be measured"

bench/peers/.venvs/%/.installed: bench/peers/%.txt
	@echo "Setting up $(@D) (once) ..."
	@rm -f $@; $(PYTHON) -m venv $(@D) && \
		$(@D)/bin/python -m pip install --quiet --disable-pip-version-check -r $< && touch $@ || \
		echo "$(@D) could not be created: $* will not be measured"

docs: $(VENV)/.dev
	$(BIN)/python docs/generate.py

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) $(AGENTS) .pythons .suites bench/peers/.venvs build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(VENV)/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@$(BIN)/python -c 'import pip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
		{ rm -rf $(VENV); $(PYTHON) -m venv $(VENV); }
	@echo "Setting up $(VENV) (once) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[demo]'
	@touch $@

$(VENV)/.dev: $(VENV)/.installed
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

$(VENV)/.cluster: $(VENV)/.dev
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[cluster]'
	@touch $@
