// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
)

// The pages that are made of the table of keys.
const (
	referencePage = "../../../docs/reference/configuration.md"
	schemaFile    = "../../../docs/reference/configuration.schema.json"
)

// TestReferenceIsCurrent: the committed page and schema are those made of the table.
func TestReferenceIsCurrent(t *testing.T) {
	var page bytes.Buffer
	if err := Reference(&page); err != nil {
		t.Fatal(err)
	}
	schema, err := Schema()
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string][]byte{referencePage: page.Bytes(), schemaFile: schema} {
		if *update {
			if err := os.WriteFile(path, want, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("%s is stale; go test ./internal/balancer/config -update writes it (-want +got):\n%s",
				filepath.Base(path), diff)
		}
	}
}

// TestReferenceExplains: every key has a sentence, and a default, unless it is required
// or has keys of its own.
func TestReferenceExplains(t *testing.T) {
	var page bytes.Buffer
	if err := Reference(&page); err != nil {
		t.Fatal(err)
	}
	rows := 0
	for line := range strings.Lines(page.String()) {
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		rows++
		cells := strings.Split(strings.ReplaceAll(strings.TrimSpace(line), `\|`, ""), "|")
		key, kind, fallback, what := cells[1], cells[2], strings.TrimSpace(cells[3]), strings.TrimSpace(cells[4])
		if len(cells) != 6 || strings.TrimSpace(kind) == "" || !strings.HasSuffix(what, ".") {
			t.Errorf("%s is not explained: %s", key, line)
		}
		if fallback == "" && !strings.Contains(kind, "mapping") && !strings.Contains(key, "interfaces") {
			t.Errorf("%s has no default: %s", key, line)
		}
	}
	if rows < 40 {
		t.Errorf("only %d keys", rows)
	}
}

// compiledSchema is the schema as editors read it.
func compiledSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	text, err := Schema()
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	if err := compiler.AddResource("configuration.json", doc); err != nil {
		t.Fatal(err)
	}
	schema, err := compiler.Compile("configuration.json")
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// TestSchema: an editor finds nothing wrong with files that are right, and finds keys and
// values that are not.
func TestSchema(t *testing.T) {
	schema := compiledSchema(t)
	validate := func(text []byte) error {
		var doc any
		if err := yaml.Unmarshal(text, &doc); err != nil {
			t.Fatal(err)
		}
		return schema.Validate(doc)
	}
	files, err := filepath.Glob("../../../examples/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	for _, file := range append(files, everyKey) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := validate(text); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
	right, err := os.ReadFile(everyKey)
	if err != nil {
		t.Fatal(err)
	}
	for _, wrong := range [][2]string{
		{"hook: tc", "hook: dpdk"}, {"hook: tc", "hok: tc"}, {"hook: tc", "interface: eth0"},
		{"port: 80\n", "port: 65536\n"}, {"    port: 80\n", ""},
		{"weight: 3", "weight: heavy"}, {"opening: 20s", "opening: 20"}, {"vip: 192.0.2.100", "vip: web"},
		{"drain: true", "drain: 1"},
		{"interfaces: [eth0, eth1]", "interfaces: []"}, {"interfaces: [eth0, eth1]", ""},
		{"name: web01", "name: web 01"},
	} {
		text := strings.Replace(string(right), wrong[0], wrong[1], 1)
		if text == string(right) {
			t.Errorf("%q is not in the file", wrong[0])
		} else if err := validate([]byte(text)); err == nil {
			t.Errorf("nothing is wrong with %q", wrong[1])
		}
	}
}
