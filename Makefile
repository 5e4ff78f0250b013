# Set up and run. `make sweep` runs the main job, `make test` the tests. PYTHON chooses the interpreter.
# An interpreter that has torch already (a ROCm or CUDA image) keeps its torch and Triton.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SHAPES ?= configs/shapes/gpumode.yaml
WORKERS ?= auto

.PHONY: sweep test check fmt reference rehearsal install clean

sweep: install
	$(BIN)/python run_search.py sweep --shapes $(SHAPES) $(ARGS)

test: install check
	$(BIN)/python -m pytest -n $(WORKERS) -m "not slow and not gpu" $(ARGS)

# The commands of docs/measuring.md against a simulated MI355X; minutes, on any machine with a C compiler and llvm-objdump.
rehearsal: install
	$(BIN)/python tests/support/rehearsal.py $(ARGS)

check: install
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check --quiet .
	$(BIN)/python -m mypy

fmt: install
	$(BIN)/python -m ruff check --fix .
	$(BIN)/python -m ruff format .

reference: install
	PYTHONPATH=. $(BIN)/python tests/support/reference.py

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt setup_venv.sh
	sh setup_venv.sh $(PYTHON) $(VENV)
	touch $@

clean:
	rm -rf $(VENV) build *.egg-info
