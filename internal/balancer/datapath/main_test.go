// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"os"
	"runtime"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
)

// TestMain keeps the plain programs for as long as the tests run, which load them by the hundred.
func TestMain(m *testing.M) {
	// The programs that machines with weakly ordered memory load, on this one.
	if os.Getenv("JEOUL_TEST_WEAK") != "" {
		mapmem.AssumeWeak()
	}
	var kept []*ebpf.CollectionSpec
	for _, e := range []*objects.Embedded{&objects.XDP, &objects.TC} {
		spec, err := e.Original()
		if err != nil {
			panic(err) // the generated objects are damaged
		}
		kept = append(kept, spec)
	}
	onNew = pool.attachTo
	code := m.Run()
	runtime.KeepAlive(kept)
	os.Exit(code)
}
