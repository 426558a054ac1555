# The front door: `make` builds, `make test` sets up, builds and tests. CMake presets do the work.
PRESET ?= release
BUILD ?= build/$(PRESET)
JOBS ?= $(shell nproc)
PREFIX ?= /usr/local
CLANG := $(if $(filter asan-ubsan tsan,$(PRESET)),--fuzz)
PROGRAMS := test_device_discovery test_connection test_tcpx_transfer test_tcpx_perf p2p_fullmesh

.PHONY: all test install clean help configure place tools $(PROGRAMS)
.DEFAULT_GOAL := all
# Two builds at once in one build folder would get in each other's way; each of them is parallel in itself.
.NOTPARALLEL:

# Into tests/; where the checkout is read-only they stay where they were built.
define link_programs
@if [ -w tests ]; then for program in $(1); do ln -sfr $(BUILD)/tests/$$program tests/$$program; done; \
  else echo "make: tests/ is read-only; the programs are in $(BUILD)/tests/"; fi
endef

all: configure
	@cmake --build $(BUILD) -j $(JOBS)
	$(call link_programs,$(PROGRAMS))

test:
	@scripts/install_deps.sh --tests $(CLANG)
	@$(MAKE) --no-print-directory all
	@scripts/run_tests.sh $(BUILD)

# Removing it again: docs/install.md.
install: all
	@cmake --install $(BUILD) --prefix "$(PREFIX)"

# Every other test program has a target of its name, too.
define build_one
@cmake --build $(BUILD) -j $(JOBS) --target $@
$(call link_programs,$@)
endef
$(PROGRAMS): configure
	$(build_one)
test_%: configure
	$(build_one)

configure: place tools
	@cmake --preset $(PRESET) -B $(BUILD)

# CMake would say the same in thirty lines, without the cure.
place:
	@mkdir -p "$(BUILD)" 2>/dev/null && [ -w "$(BUILD)" ] || \
	  { echo "make: $(BUILD) cannot be written; build elsewhere: make BUILD=\$$HOME/tcpx-build" >&2; exit 1; }
	@source=$$(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' "$(BUILD)/CMakeCache.txt" 2>/dev/null); \
	  [ -z "$$source" ] || [ "$$source" -ef . ] || \
	  { echo "make: $(BUILD) was configured in $$source, and this is $(CURDIR): make clean BUILD=$(BUILD), then make again" >&2; exit 1; }

tools:
	@scripts/install_deps.sh --check $(CLANG) >/dev/null || \
	  { scripts/install_deps.sh --check $(CLANG) >&2; echo "make: it is installed by scripts/install_deps.sh $(CLANG)" >&2; exit 1; }

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
