// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"github.com/jeoul/jeoul/internal/weigh/bench/subject/subjecttest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

func TestKeepalivedConfigs(t *testing.T) {
	subjecttest.CheckConfigs(t, map[string]subjecttest.Filled{
		"keepalived-changed.conf": {Config: keepalivedConfig, Values: keepalived{ipvsMasquerade}.services(subjecttest.ChangedPaper())},
		"keepalived-checked.conf": {Config: keepalivedConfig, Values: keepalived{ipvsDirect}.services(subjecttest.CheckedPaper())},
	})
}

func TestKeepalivedAcceptsItsConfigs(t *testing.T) {
	if _, err := exec.LookPath(keepalivedProgram); err != nil {
		t.Skip("keepalived is not installed: `make deps-vm` brings it")
	}
	for _, name := range []string{"keepalived-changed.conf", "keepalived-checked.conf"} {
		log := filepath.Join(t.TempDir(), "log")
		output, err := exec.CommandContext(t.Context(), keepalivedProgram, "--check", "--config-test="+log,
			"--use-file", filepath.Join("testdata", name)).CombinedOutput()
		words, _ := os.ReadFile(log)
		if err != nil || len(words) > 0 {
			t.Errorf("%s: %v: %s%s", name, err, output, words)
		}
	}
}

// TestKeepalivedServes distinguishes servers that the kernel has in all services, in some and in none.
func TestKeepalivedServes(t *testing.T) {
	table := keepalivedTable{
		"tcp": {netip.MustParseAddrPort("198.18.2.1:80"): 1, netip.MustParseAddrPort("198.18.2.2:80"): 1},
		"udp": {netip.MustParseAddrPort("198.18.2.1:80"): 1},
	}
	for server, want := range map[string]struct{ in, fails bool }{
		"198.18.2.1": {true, false}, "198.18.2.2": {false, true}, "198.18.2.3": {false, false},
	} {
		if got, err := table.serves(netip.MustParseAddr(server)); got != want.in || (err != nil) != want.fails {
			t.Errorf("%s: in %t, %v", server, got, err)
		}
	}
}
