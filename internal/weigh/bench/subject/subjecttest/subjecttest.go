// SPDX-License-Identifier: Apache-2.0

// Package subjecttest has laboratories that are never built, and golden files, for the tests of subjects.
package subjecttest

import (
	"flag"
	"github.com/google/go-cmp/cmp"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	"github.com/jeoul/jeoul/internal/weigh/lab"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"text/template"
	"time"
)

// update makes Golden write the golden files again.
var update = flag.Bool("update", false, "write the golden files")

// Paper returns a laboratory on paper: its plan, which is never built.
func Paper() subject.Setup {
	l := &lab.Lab{
		FullNAT:  netip.MustParseAddr("198.18.0.99"),
		VIP4:     netip.MustParseAddr("198.18.0.100"),
		Balancer: &lab.Host{Name: "balancer", Interface: "balancer-1a2b", IPv4: netip.MustParseAddr("198.18.0.1")},
		Servers: []*lab.Host{
			{Name: "web01", IPv4: netip.MustParseAddr("198.18.2.1")},
			{Name: "web02", IPv4: netip.MustParseAddr("198.18.2.2")},
		},
	}
	return subject.Setup{Lab: l, Services: []subject.Service{{Port: 80, Servers: l.Servers}}}
}

// BulkPaper returns Paper with a service for each of two clients.
func BulkPaper() subject.Setup {
	setup := Paper()
	setup.Services = []subject.Service{{Port: 5201, Servers: setup.Lab.Servers[:1]},
		{Port: 5202, Servers: setup.Lab.Servers[1:]}}
	return setup
}

// Golden compares a text with a file in testdata.
func Golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

// Filled is a configuration's template, and the values for it.
type Filled struct {
	Config *template.Template
	Values any
}

// CheckConfigs compares configurations with their golden files, by name.
func CheckConfigs(t *testing.T, all map[string]Filled) {
	t.Helper()
	for name, of := range all {
		got, err := subject.Render(of.Config, of.Values)
		if err != nil {
			t.Fatal(err)
		}
		Golden(t, name, got)
	}
}

// ChangedPaper returns a laboratory on paper with a draining server and a server with a triple share, over TCP and UDP.
func ChangedPaper() subject.Setup {
	setup := Paper()
	setup.Services[0].UDP = true
	setup.Services[0].Weights = map[string]int{"web01": 0, "web02": 3}
	return setup
}

// CheckedPaper returns a laboratory on paper with checked servers.
func CheckedPaper() subject.Setup {
	setup := ChangedPaper()
	setup.Services[0].Check = &subject.Check{Port: 7001, Interval: time.Second, Timeout: 500 * time.Millisecond,
		Fall: 3, Rise: 2}
	return setup
}
