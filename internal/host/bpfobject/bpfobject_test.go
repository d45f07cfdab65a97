// SPDX-License-Identifier: Apache-2.0

package bpfobject

import (
	"bytes"
	"compress/gzip"
	"io"
	"strings"
	"testing"
)

func TestOpen(t *testing.T) {
	object := []byte(strings.Repeat("an object ", 1000))
	var compressed bytes.Buffer
	w := gzip.NewWriter(&compressed)
	if _, err := w.Write(object); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(io.NewSectionReader(Open(compressed.Bytes()), 0, 1<<20))
	if err != nil || !bytes.Equal(got, object) {
		t.Errorf("read %d bytes and %v, want the %d of the object", len(got), err, len(object))
	}
	for what, bad := range map[string][]byte{"nothing": nil, "an object": object,
		"half of it": compressed.Bytes()[:compressed.Len()/2]} {
		if _, err := Open(bad).ReadAt(make([]byte, 1), 0); err == nil || !strings.Contains(err.Error(), "decompress") {
			t.Errorf("%s: error %v", what, err)
		}
	}
}
