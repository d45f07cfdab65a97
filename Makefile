# SPDX-License-Identifier: Apache-2.0
#
# `make demo` and `make test` do everything on a fresh Debian machine.

GO      ?= go
BIN     := bin/jeoul
BPF_SRC := $(wildcard bpf/*.c bpf/*.h)

.PHONY: build
build: generate
	$(GO) build -o $(BIN) ./cmd/jeoul

.PHONY: generate
generate: internal/datapath/.generated

internal/datapath/.generated: $(BPF_SRC) internal/datapath/generate.go
	$(GO) generate ./internal/datapath
	touch $@
