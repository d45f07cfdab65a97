// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jeoul/jeoul/internal/test/testenv"

	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
)

// TestConnectionsOfIPVS counts the connections in a kernel's table, to all servers and to some. The lines are those of
// Linux 6.12.
func TestConnectionsOfIPVS(t *testing.T) {
	const table = `Pro FromIP   FPrt ToIP     TPrt DestIP   DPrt State       Expires PEName PEData
TCP C6120101 8AD0 C6120064 1B58 C6120201 1B58 ESTABLISHED     897
TCP C6120101 8AD2 C6120064 1B58 C6120202 1B58 FIN_WAIT        112
UDP C6120102 8AD4 C6120064 1B58 C6120201 1B58 UDP             298
`
	all := func(netip.AddrPort) bool { return true }
	first := func(server netip.AddrPort) bool { return server == netip.MustParseAddrPort("198.18.2.1:7000") }
	none := func(netip.AddrPort) bool { return false }
	for name, tc := range map[string]struct {
		table string
		of    func(netip.AddrPort) bool
		want  int
		fails bool
	}{
		"all":           {table, all, 3, false},
		"of one server": {table, first, 2, false},
		"of none":       {table, none, 0, false},
		"empty":         {strings.SplitAfter(table, "\n")[0], all, 0, false},
		"cut short":     {table + "TCP C6120101 8AD0\n", all, 0, true},
		"no address":    {table + "TCP C6120101 8AD0 C6120064 1B58 server 1B58 ESTABLISHED 897\n", all, 0, true},
	} {
		got, err := countConnections([]byte(tc.table), tc.of)
		if got != tc.want || (err != nil) != tc.fails {
			t.Errorf("%s: %d, %v; want %d", name, got, err, tc.want)
		}
	}
}

// TestBIRDAcceptsItsConfig lets BIRD parse the configuration for the VIP beside IPVS.
func TestBIRDAcceptsItsConfig(t *testing.T) {
	bird := testenv.Program(t, "bird")
	path := filepath.Join(t.TempDir(), "bird.conf")
	text := birdText(netip.MustParseAddr("198.18.0.100"), netip.MustParseAddr("198.19.1.2"),
		netip.MustParseAddr("198.19.1.1"))
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if output, err := exec.CommandContext(t.Context(), bird, "-p", "-c", path).CombinedOutput(); err != nil {
		t.Errorf("%v: %s\n%s", err, output, text)
	}
}

// TestSyncOfIPVS: a suite without the parameter runs no sync daemon.
func TestSyncOfIPVS(t *testing.T) {
	for value, want := range map[any]string{nil: "", "none": "", "usual": "3 50", "every": "0 1", "sloppy": ""} {
		if got := syncOf(subject.Params{paramSync: value}); got.threshold != want || got.sloppy != (value == "sloppy") {
			t.Errorf("%v: %+v", value, got)
		}
	}
}
