// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/jeoul/jeoul/internal/balancer/config"
)

var update = flag.Bool("update", false, "write the golden files anew")

// testcase is testdata/NAME.txtar: the configuration `in`, and the expected result and remarks for each dialect.
type testcase struct {
	name, path string
	archive    *txtar.Archive
}

func cases(t testing.TB) []testcase {
	t.Helper()
	paths, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	var all []testcase
	for _, path := range paths {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, testcase{strings.TrimSuffix(filepath.Base(path), ".txtar"), path, archive})
	}
	return all
}

// section returns a file of the archive.
func (c testcase) section(name string) string {
	for _, f := range c.archive.Files {
		if f.Name == name {
			return string(f.Data)
		}
	}
	return ""
}

// export exports the case, of which the dialect may be able to express nothing.
func (c testcase) export(t testing.TB, dialect string) *Result {
	t.Helper()
	result, err := Export(dialect, config.Source{Name: "in", Data: []byte(c.section("in"))})
	if err != nil && !errors.Is(err, ErrNothing) {
		t.Fatal(err)
	}
	return result
}

// TestGolden: each case becomes the expected result in each dialect.
func TestGolden(t *testing.T) {
	for _, c := range cases(t) {
		got := map[string]string{}
		for _, dialect := range Dialects() {
			result := c.export(t, dialect)
			var remarks strings.Builder
			for _, r := range result.Remarks {
				fmt.Fprintln(&remarks, r)
			}
			got[dialect], got[dialect+".remarks"] = string(result.Text), remarks.String()
		}
		c.compare(t, got)
	}
}

// compare compares results with the expected ones, or updates those.
func (c testcase) compare(t *testing.T, got map[string]string) {
	t.Helper()
	if *update {
		c.archive.Files = slices.DeleteFunc(c.archive.Files, func(f txtar.File) bool { return f.Name != "in" })
		for _, dialect := range Dialects() {
			for _, name := range []string{dialect, dialect + ".remarks"} {
				c.archive.Files = append(c.archive.Files, txtar.File{Name: name, Data: []byte(got[name])})
			}
		}
		if err := os.WriteFile(c.path, txtar.Format(c.archive), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range got {
		if diff := cmp.Diff(c.section(name), text); diff != "" {
			t.Errorf("%s: %s (-want +got; -update writes it anew):\n%s", c.name, name, diff)
		}
	}
}

// TestEverything: each key of a configuration with every key is in the result or has a remark, and none except those of
// checks has the reason for unknown keys.
func TestEverything(t *testing.T) {
	data, err := os.ReadFile("../../balancer/config/testdata/everything.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, dialect := range Dialects() {
		result, err := Export(dialect, config.Source{Name: "everything.yaml", Data: data})
		if err != nil && !errors.Is(err, ErrNothing) {
			t.Fatal(err)
		}
		for _, r := range result.Remarks {
			if strings.HasSuffix(r.Why, "has nothing like it") && !strings.HasPrefix(r.Why, "check") {
				t.Errorf("%s: say why, and what to do: %s", dialect, r)
			}
		}
	}
}

// TestRefused: an invalid configuration is rejected as by the balancer, and so is an unknown dialect.
func TestRefused(t *testing.T) {
	_, err := Export("haproxy", config.Source{Name: "in", Data: []byte("interface: eth0\nservices: web\n")})
	if err == nil || !strings.Contains(err.Error(), "in:2: services: ") {
		t.Errorf("%v", err)
	}
	if _, err = Export("pf", config.Source{Name: "in"}); err == nil ||
		!strings.Contains(err.Error(), `unknown dialect "pf"`) {
		t.Errorf("%v", err)
	}
}
