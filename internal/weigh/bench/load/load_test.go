// SPDX-License-Identifier: Apache-2.0

package load

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestKindsReachWorkersWithTheirSettings(t *testing.T) {
	asked := DNSPerf{Question: "a.domain.local A", Threads: 16, Rate: 1000, Timeout: 2 * time.Second}
	for _, kind := range []Kind{AB{}, Wrk{}, IPerf3{}, asked} {
		settings, err := json.Marshal(kind)
		if err != nil {
			t.Fatal(err)
		}
		got, err := kindOf(kind.Name(), settings)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(kind, got); diff != "" {
			t.Errorf("%s (-sent +arrived):\n%s", kind.Name(), diff)
		}
	}
	for name, settings := range map[string]string{"no-such-load": "{}", asked.Name(): `{"Threads": "many"}`} {
		if kind, err := kindOf(name, []byte(settings)); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s with %s: %v, %v", name, settings, kind, err)
		}
	}
}

func TestKindsHaveNamesOfTheirOwn(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a second ab was registered")
		}
	}()
	Register(AB{})
}
