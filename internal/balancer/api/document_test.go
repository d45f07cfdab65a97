// SPDX-License-Identifier: Apache-2.0

package api

import (
	"flag"
	"os"
	"testing"
)

var update = flag.Bool("update", false, "write the reference anew")

// TestDocumentReference: the committed description is that of the API.
func TestDocumentReference(t *testing.T) {
	const path = "../../../docs/reference/openapi.json"
	want, err := Document()
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != string(want) {
		t.Errorf("%s is stale (%v): run `go test ./internal/balancer/api -run Reference -update`", path, err)
	}
}
