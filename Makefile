# The front door: `make` builds, `make test` sets up, builds and tests. CMake presets do the work.
PRESET ?= release
BUILD ?= build/$(PRESET)
JOBS ?= $(shell nproc)
PREFIX ?= /usr/local
PROGRAMS := test_device_discovery test_connection test_tcpx_transfer test_tcpx_perf p2p_fullmesh

.PHONY: all test install clean help configure tools $(PROGRAMS)
.DEFAULT_GOAL := all
# Two builds at once in one build folder would get in each other's way; each of them is parallel in itself.
.NOTPARALLEL:

all: configure
	@cmake --build $(BUILD) -j $(JOBS)
	@for program in $(PROGRAMS); do ln -sfr $(BUILD)/tests/$$program tests/$$program; done

test:
	@scripts/install_deps.sh --tests
	@$(MAKE) --no-print-directory all
	@scripts/run_tests.sh $(BUILD)

# Removing it again: docs/install.md.
install: all
	@cmake --install $(BUILD) --prefix "$(PREFIX)"

# Every other test program has a target of its name, too.
define build_one
@cmake --build $(BUILD) -j $(JOBS) --target $@
@ln -sfr $(BUILD)/tests/$@ tests/$@
endef
$(PROGRAMS): configure
	$(build_one)
test_%: configure
	$(build_one)

configure: tools
	@cmake --preset $(PRESET) -B $(BUILD)

tools:
	@scripts/install_deps.sh --check >/dev/null || \
	  { scripts/install_deps.sh --check >&2; echo "make: run scripts/install_deps.sh, which installs it" >&2; exit 1; }

clean:
	@rm -rf $(BUILD)
	@find tests -maxdepth 1 -type l -delete

help:
	@echo 'make                        build everything; then ./tests/test_... runs from here'
	@echo 'make test                   install what is missing, build, run all tests'
	@for program in $(PROGRAMS); do printf 'make %-22s build this program only\n' $$program; done
	@echo 'make test_...               build this test only; then ./tests/test_... runs it'
	@echo 'make install                install to PREFIX (docs/install.md)'
	@echo 'make clean                  remove $(BUILD) and the links in tests/'
	@echo 'Variables: PRESET=$(PRESET) (release, cpu-only, asan-ubsan, tsan), BUILD=$(BUILD), JOBS=$(JOBS), PREFIX=$(PREFIX)'
