// SPDX-License-Identifier: Apache-2.0

package watchcmd

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdtest"
	"github.com/jeoul/jeoul/internal/balancer/events"
)

// got returns the output of a query.
func got[T any](t *testing.T, s *cmdtest.FakeBalancer, format string, k kind[T], names ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := show(t.Context(), &out, getFlags{DaemonFlags: s.Flags, getOutput: getOutput{format}}, k,
		query[T]{names, func(T) bool { return true }})
	return out.String(), err
}

// TestGetTables: the table of each kind.
func TestGetTables(t *testing.T) {
	s, stop := cmdtest.ServeFake(t, filepath.Join(t.TempDir(), "jeoul.sock"), cmdtest.Checked())
	defer stop()
	s.Log.Info("web/web03 fails its health checks", events.About{Kind: events.KindHealth, Service: "web",
		Backend: "web03"}.Attr())
	s.Log.Warn("another matter")
	var all strings.Builder
	add := func(text string, err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
		all.WriteString(text + "\n")
	}
	for _, format := range []string{"text", "wide", "name"} {
		add(got(t, s, format, serviceKind))
		add(got(t, s, format, backendKind, "web/192.0.2.1", "web/web03", "web6"))
		add(got(t, s, format, checkKind, "web/web01", "web/web03"))
	}
	cmdtest.WantGolden(t, "get", []byte(all.String()))

	text, err := got(t, s, "text", eventKind, "web")
	if lines := strings.Count(text, "\n"); err != nil || lines != 2 || !strings.Contains(text, "web/web03") {
		t.Errorf("events about web: %v:\n%s", err, text)
	}
}

// TestGetForPrograms: JSON and YAML are the API's answers; a single named object is not in a list.
func TestGetForPrograms(t *testing.T) {
	s, stop := cmdtest.ServeFake(t, filepath.Join(t.TempDir(), "jeoul.sock"), cmdtest.Checked())
	defer stop()
	client, err := s.Flags.NewClient()
	if err != nil {
		t.Fatal(err)
	}
	list, err := client.Backends(t.Context(), "web")
	if err != nil {
		t.Fatal(err)
	}
	compare := func(format string, read func([]byte, any) error, want any, names ...string) {
		t.Helper()
		text, err := got(t, s, format, backendKind, names...)
		if err != nil {
			t.Fatal(err)
		}
		var is, should any
		written, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(written, &should); err != nil {
			t.Fatal(err)
		}
		if err := read([]byte(text), &is); err != nil {
			t.Fatalf("%s: %v:\n%s", format, err, text)
		}
		if diff := cmp.Diff(should, is); diff != "" {
			t.Errorf("%s of %q (-want +got):\n%s", format, names, diff)
		}
	}
	asYAML := func(text []byte, into any) error {
		var value any
		if err := yaml.Unmarshal(text, &value); err != nil {
			return err
		}
		written, err := json.Marshal(value)
		if err != nil {
			return err
		}
		return json.Unmarshal(written, into)
	}
	for format, read := range map[string]func([]byte, any) error{"json": json.Unmarshal, "yaml": asYAML} {
		compare(format, read, list, "web")
		compare(format, read, list[2:], "web/192.0.2.13") // several may have the address
		compare(format, read, list[2], "web/web03")
	}
}

// TestGetMissing: the existing objects are printed, and the error names those that do not exist.
func TestGetMissing(t *testing.T) {
	s, stop := cmdtest.ServeFake(t, filepath.Join(t.TempDir(), "jeoul.sock"), cmdtest.Checked())
	defer stop()
	text, err := got(t, s, "name", backendKind, "web/web01", "web/web9", "shop")
	if text != "web/web01\n" {
		t.Errorf("printed %q", text)
	}
	cmdtest.WantError(t, err,
		"there is no backend web/web9; did you mean web/web01? `jeoul get backends -o name` lists those there are\nthere is no backend shop;")
}
