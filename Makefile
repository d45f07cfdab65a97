# SPDX-License-Identifier: Apache-2.0
#
# `make help` lists the targets. `make demo` and `make test` do everything on a
# fresh Debian machine, as root or as a user with sudo: files are made as the
# user, and only what needs root runs through sudo.

SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c
# The targets depend on each other in order (deps before build); what can run
# at once, `go` runs at once.
.NOTPARALLEL:

# A go that can build this tree. `make GO=/path/to/go` chooses another.
GO      ?= scripts/go.sh
# The architecture that programs and packages are made for: amd64 or arm64, by default this machine's own. Programs
# for another go to bin/ARCH; those that this machine runs stay in bin.
OWN     := $(shell . scripts/lib.sh && debian_arch)
ARCH    ?= $(OWN)
OWN_BIN := bin/jeoul
BIN     := $(if $(filter $(ARCH),$(OWN)),bin/jeoul,bin/$(ARCH)/jeoul)
RESULTS ?= results
# Length of each fuzz target's run, as `go test -fuzztime` takes it.
FUZZTIME ?= 20s
# How many random packets `make fuzz` compares with the model, for each hook.
FUZZPACKETS ?= 1000000
# More flags for `go test`, such as -v or -run=NAME.
TESTFLAGS ?=
# More flags and packages for `make test-mutants`, such as MUTANTS='-n 20 -seed 7 ./internal/balancer/lb'.
MUTANTS ?= -n 5 ./internal/balancer/control/... ./internal/balancer/health/... ./internal/balancer/vrrp ./internal/balancer/handover
# More flags for `make try`, such as --demo.
TRY ?=
# More flags for `make bench-instructions`, such as --quick or --only=direct,jeoul-l2dsr-tc.
INSTRUCTIONS ?=
# More flags for `make bench-l2dsr`, such as --loads=ab,wrk --only=direct,haproxy-http,jeoul-ipip-xdp,jeoul-gue-xdp.
L2DSR ?=
# What `make bench` measures with `jeoul bench`.
MEASURED ?= packets distribution memory scale
# Runs the tests, and names the slowest.
GOTESTSUM   := gotest.tools/gotestsum@v1.13.0
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
# The newest whose dependencies the Go module proxy has.
NFPM := github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.43.4
# Without symbols for debuggers, which are a quarter of the program; stack traces and profiles need none.
# `make GO_LDFLAGS=` keeps them.
GO_LDFLAGS ?= -s -w
# Where packages go.
DIST ?= dist
# What builds container images: podman, buildah or docker.
PODMAN ?= podman

# A static binary, which needs no C compiler; `make CGO_ENABLED=1 TESTFLAGS=-race test-unit` does.
export CGO_ENABLED ?= 0
# Without the paths of this tree, so that a second clone on the machine finds in Go's cache what the first has compiled.
export GOFLAGS := $(GOFLAGS) -trimpath

AS_ROOT   := scripts/as-root.sh
# Runs tests by root, and removes what they leave when they are interrupted.
SWEPT     := GO='$(GO)' scripts/swept.sh
GIVE_BACK := scripts/give-back.sh

.PHONY: build
build: generate ## build bin/jeoul and bin/jeoul-bgp (the default); with ARCH=arm64 or ARCH=amd64 on a machine of the other, in bin/ARCH
	@mkdir -p $(dir $(BIN))
	@GOARCH=$(ARCH) $(GO) build -buildvcs=auto -ldflags='$(GO_LDFLAGS)' -o $(dir $(BIN)) ./cmd/jeoul ./cmd/jeoul-bgp
	@$(GIVE_BACK) bin internal

# build-jeoul leaves out what speaks BGP, which a demo does not need.
.PHONY: build-jeoul
build-jeoul: generate
	@GOARCH=$(ARCH) $(GO) build -buildvcs=auto -ldflags='$(GO_LDFLAGS)' -o $(BIN) ./cmd/jeoul
	@$(GIVE_BACK) bin internal

# build-own is what the machine runs that makes packages for another.
.PHONY: build-own
build-own: generate
	@$(GO) build -buildvcs=auto -ldflags='$(GO_LDFLAGS)' -o $(OWN_BIN) ./cmd/jeoul
	@$(GIVE_BACK) bin internal

.PHONY: build-bgp
build-bgp: ## build bin/jeoul-bgp, which jeoul starts where its configuration has `bgp`
	@GOARCH=$(ARCH) $(GO) build -buildvcs=auto -ldflags='$(GO_LDFLAGS)' -o $(BIN)-bgp ./cmd/jeoul-bgp
	@$(GIVE_BACK) bin

.PHONY: build-kubernetes
build-kubernetes: ## build bin/jeoul-kubernetes, for Services of a Kubernetes cluster
	@GOARCH=$(ARCH) $(GO) build -buildvcs=auto -ldflags='$(GO_LDFLAGS)' -o $(BIN)-kubernetes ./cmd/jeoul-kubernetes
	@$(GIVE_BACK) bin

.PHONY: other
other: generate ## build bin/jeoul-other, with another map layout: see docs/guides/restart.md
	@GO='$(GO)' scripts/other-build.sh $(BIN)-other
	@$(GIVE_BACK) bin

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: deps
deps: ## install what is missing: Debian packages, and Go if it is too old
	@scripts/deps.sh

.PHONY: deps-vm
deps-vm: ## install what a laboratory in a virtual machine needs as well
	@scripts/deps.sh vm

# deps-package installs no servers, which only tests and laboratories need.
.PHONY: deps-package
deps-package:
	@scripts/deps.sh package

# deps-demo compiles other modules meanwhile: neither half of what a fresh machine waits for needs the other.
.PHONY: deps-demo
deps-demo:
	@scripts/modules.sh $(ARCH) >/dev/null 2>&1 & scripts/deps.sh demo || { status=$$?; wait; exit $$status; }

.PHONY: try
try: rights-try deps-demo build-jeoul ## try a balancer with three web servers and a client on this machine (TRY=--demo: by itself); needs root
	@$(AS_ROOT) $(BIN) try $(TRY)

.PHONY: demo
demo: rights-demo deps-demo build-jeoul ## weigh L2DSR against a proxy, in the short form; needs root
	@mkdir -p $(RESULTS)
	@trap '$(AS_ROOT) $(GIVE_BACK) $(RESULTS)' EXIT; \
	$(AS_ROOT) $(BIN) bench run suites/l2dsr-bmt.yaml --quick --to $(RESULTS)/demo
	@printf 'Open the report in a browser: file://%s\n' '$(abspath $(RESULTS)/demo/report.html)'

.PHONY: test
test: rights-test deps build ## run one case of each kind of test; needs root
	@# `make lint` vets. The packages that take longest begin first, or one of them would be left at the end with a core to itself.
	GOTESTSUM='$(GOTESTSUM)' TESTFLAGS='$(TESTFLAGS)' JEOUL_TEST_BINARY='$(abspath $(BIN))' $(SWEPT) scripts/test.sh ./internal/balancer/datapath ./cmd/jeoul ./internal/weigh/bench ./...

.PHONY: test-repeat
test-repeat: rights-test-repeat deps build ## run `make test` RUNS times (20), every second time beside busy loops, a memory hog or stopped tests, and list how each run went
	@scripts/repeat-test.sh

.PHONY: test-odd-machine
test-odd-machine: rights-test-odd-machine deps build ## run `make test` where a machine is odd (no BPF file system, a read-only home, no IPv6, others' namespaces and listeners), and interrupt it INTERRUPTS times (3)
	@GO='$(GO)' scripts/odd-machine-test.sh

.PHONY: test-unit
test-unit: generate ## run the tests that need no root; the others skip
	$(GO) test $(TESTFLAGS) ./...

.PHONY: test-kills
test-kills: rights-test deps build ## kill a process at every step of what it does to a data plane and to a host, not only at some
	JEOUL_TEST_EVERY_STEP=1 $(SWEPT) $(GO) test -count=1 -timeout=6h -exec="'$(CURDIR)/$(AS_ROOT)'" -run='TestKilledAtEachStep|TestConnectionsGoOnAfterAKill' ./internal/balancer/datapath ./internal/host/hostnet ./cmd/jeoul

# root_test TARGET,PACKAGES: the tests of a target of internal/test/testenv, by root.
define root_test
	JEOUL_TEST_TARGET=$(1) JEOUL_TEST_BINARY='$(abspath $(BIN))' $(SWEPT) $(GO) test -count=1 -timeout=90m -exec="'$(CURDIR)/$(AS_ROOT)'" $(TESTFLAGS) $(2)
endef

.PHONY: test-matrix
test-matrix: rights-test deps build ## run end to end every family, check, illness and fault of which `make test` runs one of each kind
	$(call root_test,test-matrix,./cmd/jeoul)

.PHONY: test-machines
test-machines: rights-test deps build ## run the bench on machines by SSH: every kind of load and subject, and machines that cannot be used
	$(call root_test,test-machines,./cmd/jeoul)

.PHONY: test-dashboard
test-dashboard: rights-test deps build ## look at a live laboratory through the dashboard in headless Chromium: what it shows, what it changes, who may, axe-core
	@scripts/deps.sh browser
	$(call root_test,test-dashboard,./cmd/jeoul)

.PHONY: test-capture
test-capture: rights-test deps build ## capture 100,000 packets (JEOUL_TEST_PACKETS) through each mode, family and hook, read them by tshark, and compare with counters and traces
	@scripts/deps.sh capture
	$(call root_test,test-capture,./cmd/jeoul)

.PHONY: test-hooks
test-hooks: rights-test deps build ## run the tests of the data plane and end to end in XDP and in TC, and all other cases of both
	$(call root_test,all,./internal/balancer/datapath ./cmd/jeoul)

.PHONY: test-writers
test-writers: rights-test deps build ## change a balancer by file and by API at once, 1,000 times each, and kill it in between
	JEOUL_TEST_CHANGES=1000 $(SWEPT) $(GO) test -v -count=1 -timeout=30m -exec="'$(CURDIR)/$(AS_ROOT)'" -run='^TestTwoWriters$$' ./cmd/jeoul

.PHONY: test-import
test-import: rights-test deps build ## serve 1,000 requests by each of 150 configurations of other programs, and by what jeoul import makes of it; keepalived's IPVS in a virtual machine
	JEOUL_TEST_IMPORTS=1 $(SWEPT) $(GO) test -v -count=1 -timeout=60m -exec="'$(CURDIR)/$(AS_ROOT)'" -run='^TestImportsServeTheSame$$' ./cmd/jeoul
	@GO='$(GO)' JEOUL_PACKAGES=cmd/jeoul JEOUL_RUN='^TestKeepalivedImportsServeTheSame$$' JEOUL_MACHINE_ENV=JEOUL_TEST_IMPORTS=1 TESTFLAGS=-test.v \
		scripts/test-kernels.sh --arch $(ARCH) bookworm

.PHONY: test-discovery
test-discovery: rights-test deps build ## rewrite a list of backends 1,000 times beside BIND under live connections, and follow a real Podman, if it runs here
	JEOUL_TEST_CHANGES=1000 $(SWEPT) $(GO) test -v -count=1 -timeout=30m -exec="'$(CURDIR)/$(AS_ROOT)'" -run='^TestDiscoveredBackends$$' ./cmd/jeoul
	CGO_ENABLED=0 JEOUL_TEST_PODMAN=1 $(SWEPT) $(GO) test -v -count=1 -timeout=30m -exec="'$(CURDIR)/$(AS_ROOT)'" -run='^TestPodman$$' ./internal/balancer/discover

.PHONY: test-bgp
test-bgp: rights-test deps build ## announce VIPs to BIRD and FRR, ten times: restarts, drains, wrong peers, floods, BFD
	@scripts/deps.sh bgp
	JEOUL_TEST_FRR=1 $(SWEPT) $(GO) test -v -count=10 -timeout=60m -exec="'$(CURDIR)/$(AS_ROOT)'" ./internal/balancer/bgp/speaker
	JEOUL_TEST_FRR=1 $(SWEPT) $(GO) test -v -count=1 -timeout=10m -exec="'$(CURDIR)/$(AS_ROOT)'" -run='^(TestLocalSpeaker|TestFRRAnnouncesConnected)$$' ./cmd/jeoul

.PHONY: test-disk
test-disk: rights-test deps build ## make the state directory unwritable 100 times, and each write of the daemon's fail, under connections that must not break
	JEOUL_TEST_TARGET=test-disk $(SWEPT) $(GO) test -v -count=1 -timeout=90m -exec="'$(CURDIR)/$(AS_ROOT)'" -run='^(TestUnwritable|TestFaultsAtEachWrite)' ./cmd/jeoul ./internal/balancer/datapath

.PHONY: test-vrrp
test-vrrp: rights-test deps build ## measure how long VIPs take from a balancer to keepalived and back, and what planned switches lose, ten times; stop balancers briefly
	JEOUL_TEST_TARGET=test-vrrp JEOUL_TEST_VRRP=10 $(SWEPT) $(GO) test -v -count=1 -timeout=10m -exec="'$(CURDIR)/$(AS_ROOT)'" -run='^(TestMeasureVRRP|TestStalledBalancers)' ./cmd/jeoul

.PHONY: test-reply-hops
test-reply-hops: rights-test deps build ## measure how long a client whose MAC address changes gets no replies, beside the kernel as a forwarder, ten times
	JEOUL_TEST_REPLYHOPS=10 $(SWEPT) $(GO) test -v -count=1 -timeout=40m -exec="'$(CURDIR)/$(AS_ROOT)'" -run='^TestMeasureReplyHops$$' ./cmd/jeoul

.PHONY: test-bench
test-bench: rights-test deps build ## run every subject, load and event of the bench, and all that it measures, not only one of each kind
	$(call root_test,test-bench,-p=1 ./internal/weigh/bench/...)

.PHONY: test-balancers
test-balancers: rights-test deps build ## drain, bring back and kill one of three balancers behind a router, and compare what breaks with the plan
	JEOUL_TEST_BALANCERS=1 JEOUL_TEST_BINARY='$(abspath $(BIN))' $(SWEPT) $(GO) test -v -count=1 -timeout=10m -exec="'$(CURDIR)/$(AS_ROOT)'" -run='^TestBalancersBreakWhatIsPlanned$$' ./internal/weigh/bench

.PHONY: test-soak
test-soak: rights-test deps build ## an hour (JEOUL_SOAK) of random faults (JEOUL_SOAK_SEED) of three balancers under live connections: see docs/weigh/several.md
	JEOUL_SOAK=$${JEOUL_SOAK:-1h} $(SWEPT) $(GO) test -v -count=1 -timeout=24h -exec="'$(CURDIR)/$(AS_ROOT)'" -run='^TestSoak$$' ./cmd/jeoul

.PHONY: test-kubernetes
test-kubernetes: rights-test deps build build-kubernetes ## serve a real Kubernetes cluster (API server, controllers, kube-proxy) in namespaces; the first run compiles Kubernetes
	JEOUL_TEST_TARGET=$@ JEOUL_TEST_BINARIES='$(abspath $(dir $(BIN)))' \
		$(SWEPT) $(GO) test -C test/kubernetes -vet=off -v -count=1 -timeout=30m -exec="'$(CURDIR)/$(AS_ROOT)'" $(TESTFLAGS) ./...

# gateway_test TEST,REPORT: the conformance suite of the Gateway API, whose report goes to docs/results/REPORT.
define gateway_test
	@$(GO) build -C test/kubernetes -o '$(abspath $(dir $(BIN)))/echo-basic' sigs.k8s.io/gateway-api/conformance/echo-basic
	JEOUL_TEST_TARGET=$@ JEOUL_TEST_BINARIES='$(abspath $(dir $(BIN)))' JEOUL_TEST_REPORT='$(CURDIR)/docs/results/$(2)' \
		JEOUL_TEST_CRDS="$$($(GO) list -C test/kubernetes -m -f '{{.Dir}}' sigs.k8s.io/gateway-api)/config/crd/standard" \
		$(SWEPT) $(GO) test -C test/kubernetes -vet=off -v -count=1 -timeout=60m -exec="'$(CURDIR)/$(AS_ROOT)'" -run='^$(1)$$' ./e2e
endef

.PHONY: test-gateway
test-gateway: rights-test deps build build-kubernetes ## run the conformance suite of the Gateway API on a Kubernetes cluster in namespaces, and write its report
	$(call gateway_test,TestGatewayConformance,gateway-conformance.yaml)

.PHONY: test-gateway-http
test-gateway-http: rights-test deps build build-kubernetes ## run its profile of HTTP, which the proxy carries in part, and write how far
	$(call gateway_test,TestGatewayHTTP,gateway-http.yaml)

.PHONY: bench-kubernetes
bench-kubernetes: rights-test build build-kubernetes ## measure 5,000 Services with 20 pods each: a change up to the balancer's configuration and its data plane, then, of a real API server, 100 a second, and 50 pods replaced under 500 new connections a second
	@JEOUL_TEST_BINARY='$(abspath $(BIN))' $(SWEPT) $(GO) test ./internal/balancer/kubernetes/controller -exec="'$(CURDIR)/$(AS_ROOT)'" -run='^$$' -bench='^Benchmark(Scale|Served)$$' -benchtime=100x
	@JEOUL_TEST_TARGET=$@ JEOUL_TEST_BINARIES='$(abspath $(dir $(BIN)))' \
		$(SWEPT) $(GO) test -C test/kubernetes -vet=off -v -count=1 -timeout=30m -exec="'$(CURDIR)/$(AS_ROOT)'" -run='Measured$$' ./e2e

.PHONY: test-packages
test-packages: rights-test-packages deb ## install, use, upgrade and purge the Debian package under systemd, in a container
	@CGO_ENABLED=0 $(GO) test -c -o bin/proxy.test ./internal/balancer/proxy
	@$(AS_ROOT) scripts/test-packages.sh "$$(ls -t $(DIST)/*.deb | head -n 1)"

.PHONY: test-api
test-api: rights-test-api build ## ask a live balancer's API whatever its OpenAPI document permits, by schemathesis
	@$(AS_ROOT) scripts/test-api.sh $(BIN)

.PHONY: test-kernels
test-kernels: generate ## run the tests of the eBPF programs on Debian's oldest and newest kernel, in QEMU, and those that set a machine's clock; ARCH=arm64 emulates
	@GO='$(GO)' scripts/test-kernels.sh --arch $(ARCH)
	@ARCH=$(ARCH) scripts/deps.sh vm
	JEOUL_TEST_VM=1 JEOUL_TEST_VM_ARCH=$(ARCH) \
		$(GO) test -count=1 -run='^(TestMachine|TestClockIsSetInVM)$$' ./internal/weigh/vm ./internal/balancer/health

.PHONY: deb
deb: deps-package build build-own ## make a Debian package into dist, of ARCH
	@ARCH=$(ARCH) HERE=$(OWN_BIN) GO='$(GO)' NFPM='$(NFPM)' scripts/package.sh deb $(BIN) $(DIST)

.PHONY: deb-bgp
deb-bgp: deps-package build-bgp ## make a Debian package of jeoul-bgp into dist/bgp
	@ARCH=$(ARCH) GO='$(GO)' NFPM='$(NFPM)' scripts/package.sh deb-bgp $(BIN)-bgp $(DIST)/bgp

.PHONY: deb-kubernetes
deb-kubernetes: deps-package build-kubernetes ## make a Debian package of jeoul-kubernetes into dist/kubernetes
	@ARCH=$(ARCH) GO='$(GO)' NFPM='$(NFPM)' scripts/package.sh deb-kubernetes $(BIN)-kubernetes $(DIST)/kubernetes

.PHONY: tarball
tarball: deps-package build build-own build-kubernetes ## make an archive of the static program and its files into dist, of ARCH
	@ARCH=$(ARCH) HERE=$(OWN_BIN) GO='$(GO)' scripts/package.sh tarball $(BIN) $(DIST)

.PHONY: image
image: build ## build a container image of ARCH, localhost/jeoul, by podman or what PODMAN names: see docs/start/install.md
	@$(PODMAN) build --platform linux/$(ARCH) -t jeoul$(if $(filter $(ARCH),$(OWN)),,:$(ARCH)) -f deploy/container/Containerfile $(dir $(BIN))

.PHONY: bench
bench: rights-bench deps build ## measure the data plane and the Go code into results/bench; needs root
	@mkdir -p $(RESULTS)/bench
	for what in $(MEASURED); do \
		$(AS_ROOT) $(BIN) bench $$what -o json >$(RESULTS)/bench/$$what.json; \
		$(BIN) report $(RESULTS)/bench/$$what.json; \
	done
	$(GO) test -run='^$$' -bench=. -benchmem ./... | tee $(RESULTS)/bench/go.txt
	@$(GIVE_BACK) $(RESULTS)

.PHONY: bench-l2dsr
bench-l2dsr: rights-bench-l2dsr deps build ## weigh L2DSR against a proxy, every mode, hook and load, into results/l2dsr: hours; needs root
	@mkdir -p $(RESULTS)
	@trap '$(AS_ROOT) $(GIVE_BACK) $(RESULTS)' EXIT; \
	$(AS_ROOT) $(BIN) bench run suites/l2dsr-bmt.yaml $(L2DSR) --to $(RESULTS)/l2dsr

.PHONY: bench-health
bench-health: rights-bench-health deps build ## measure health checks into results/health: what they cost, and ten minutes of them on saturated cores; needs root
	@mkdir -p $(RESULTS)/health
	@trap '$(AS_ROOT) $(GIVE_BACK) $(RESULTS)' EXIT; \
	JEOUL_MEASURE='$(abspath $(RESULTS)/health)' \
		$(SWEPT) $(GO) test -p=1 -count=1 -timeout=30m -exec="'$(CURDIR)/$(AS_ROOT)'" -run='^TestMeasure' $(TESTFLAGS) ./internal/balancer/health ./cmd/jeoul
	@cat $(RESULTS)/health/*.txt

.PHONY: bench-api
bench-api: rights-bench-api deps build ## measure into results/api what the API's worst clients cost those of the VIP, and the daemon's memory; needs root
	@mkdir -p $(RESULTS)/api
	@trap '$(AS_ROOT) $(GIVE_BACK) $(RESULTS)' EXIT; \
	JEOUL_MEASURE='$(abspath $(RESULTS)/api)' \
		$(SWEPT) $(GO) test -count=1 -timeout=10m -exec="'$(CURDIR)/$(AS_ROOT)'" -run='^TestBoundsMeasured$$' $(TESTFLAGS) ./cmd/jeoul
	@cat $(RESULTS)/api/*.txt

.PHONY: bench-watch
bench-watch: rights-bench-watch deps build ## measure into results/watch what watching costs the daemon and packets, how 10,000 backends scroll, and what is lost beside a capture; needs root
	@scripts/deps.sh browser
	@mkdir -p $(RESULTS)/watch
	@trap '$(AS_ROOT) $(GIVE_BACK) $(RESULTS)' EXIT; \
	JEOUL_MEASURE='$(abspath $(RESULTS)/watch)' \
		$(SWEPT) $(GO) test -count=1 -timeout=20m -exec="'$(CURDIR)/$(AS_ROOT)'" -run='^Test(Watching|Scrolling|CaptureLoss)Measured$$' $(TESTFLAGS) ./cmd/jeoul
	@cat $(RESULTS)/watch/*.txt

.PHONY: bench-instructions
bench-instructions: deps-vm build ## count instructions per connection in an emulated machine
	@mkdir -p $(RESULTS)
	@$(BIN) bench run suites/instructions.yaml --lab vm-icount $(INSTRUCTIONS) \
		--to $(RESULTS)/instructions-$$(git -c safe.directory='$(CURDIR)' describe --always --dirty 2>/dev/null || echo unknown)

.PHONY: pages
pages: generate ## write the pages of docs/results, and what `jeoul advise` rests on, anew from the committed results
	@$(GO) test -count=1 -run='^TestCommittedPages$$' ./internal/weigh/report -update
	@$(GO) generate ./internal/weigh/advise

.PHONY: fuzz
fuzz: generate ## each fuzz target for FUZZTIME (20s), then FUZZPACKETS (1 million); root fuzzes eBPF too
	@GO='$(GO)' scripts/fuzz.sh $(FUZZTIME) $(FUZZPACKETS)

.PHONY: test-mutants
test-mutants: generate ## change an expression at a time, 5 of each package that MUTANTS names, and list the changes that no test of the package notices
	@$(GO) run ./scripts/mutants $(MUTANTS)

.PHONY: lint
lint: generate ## check style and the house's rules: see CONTRIBUTING.md
	@GO='$(GO)' STATICCHECK='$(STATICCHECK)' scripts/lint.sh

# Generated code is not committed: it is made of bpf/ by clang. Nor are compressed files. The stamp stands
# for all of it; without any generated file left, it does not count.
TEXTS  := $(wildcard internal/weigh/report/assets/texts.*.yaml)
PACKED := $(addsuffix .gz,$(TEXTS)) $(wildcard internal/weigh/report/chart/*.ttf.gz)
GENERATED := $(foreach in,internal/*/*/ internal/*/*/*/ internal/*/*/*/*/,$(wildcard $(in)*_bpfel.go $(in)*_bpfel.o*)) $(PACKED)
STAMP     := bin/.generated

.PHONY: generate
generate: $(STAMP) ## make the Go code and objects of the eBPF programs

$(STAMP): $(shell find bpf -type f) scripts/bpf2go.sh $(wildcard scripts/fontmetrics/*.go) $(TEXTS) $(wildcard internal/*/*/generate.go internal/*/*/*/generate.go internal/*/*/*/*/generate.go) go.mod $(if $(GENERATED),,always)
	@# What is generated elsewhere now would stay where it was.
	@rm -f $(GENERATED)
	@GO='$(GO)' scripts/generate.sh $(ARCH)
	@mkdir -p $(@D)
	@touch $@

.PHONY: always
always:

.PHONY: clean
clean: ## delete what was built and generated; results and the Go cache stay
	rm -rf bin $(GENERATED)

# rights-WHAT fails at once, rather than after the build, where root is out of reach.
rights-%:
	@$(AS_ROOT) --check 'make $*'
