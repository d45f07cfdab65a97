// SPDX-License-Identifier: Apache-2.0

package results

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// repeated returns a run of two repeats with parts that a summary keeps and parts that it leaves out.
func repeated() *Run {
	run := sample()
	again := run.Trials[0]
	again.Repeat, again.Metrics = 2, map[string]float64{RequestsPerSecond: 1234.5678, Failed: 1234567}
	again.Notes = []string{"the load was 3.1", "many ports were in use"}
	again.Samples = map[string][]float64{RequestsPerSecond: {1, 2}}
	run.Trials[0].Notes = []string{"many ports were in use"}
	run.Trials = append(run.Trials, again)
	return run
}

// TestSummaryIsARun: a summary reads like the run, except for the parts that it leaves out.
func TestSummaryIsARun(t *testing.T) {
	var text bytes.Buffer
	if err := repeated().WriteSummary(&text); err != nil {
		t.Fatal(err)
	}
	got, err := Decode(text.Bytes())
	if err != nil {
		t.Fatalf("%v\n%s", err, &text)
	}
	want := repeated()
	want.Summarised = true
	want.Trials = []Trial{want.Trials[0], want.Trials[2], want.Trials[1]} // a point's repeats together
	want.Trials[1].Metrics[RequestsPerSecond] = 1234.57
	want.Trials[1].Notes, want.Trials[1].Samples = []string{"many ports were in use"}, nil
	want.Trials[2].Metrics = map[string]float64{}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	var second bytes.Buffer
	if err := got.WriteSummary(&second); err != nil || second.String() != text.String() {
		t.Errorf("the summary of a summary is another: %v\n%s\n%s", err, &text, &second)
	}
}

func TestBrokenSummaries(t *testing.T) {
	var text bytes.Buffer
	if err := repeated().WriteSummary(&text); err != nil {
		t.Fatal(err)
	}
	for old, c := range map[string]struct{ broken, want string }{
		`"repeats":[1,2]`:      {`"repeats":[1]`, "points[0] (direct, ab): "},
		`"notes":[[0]]`:        {`"notes":[[0],[9]]`, "notes names a text that is not there"},
		`"servers":[0]`:        {`"servers":[-1]`, "servers names one that is not there"},
		`"connections":[[7]]`:  {`"connections":[[7,8]]`, "an element for each of 1 servers"},
		`"valid":[true]`:       {`"valid":[true,true,true]`, "valid has 3 elements, and there are 2 repeats"},
		`"saturated":["none"]`: {`"saturated":["heat"]`, `saturated is "heat"`},
	} {
		broken := strings.Replace(text.String(), old, c.broken, 1)
		if broken == text.String() {
			t.Fatalf("there is no %s in %s", old, &text)
		}
		if _, err := Decode([]byte(broken)); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.broken, err, c.want)
		}
	}
}

// TestCompressedSummary: a compressed file reads like the plain one; a truncated file, or one that is not gzip, is
// rejected.
func TestCompressedSummary(t *testing.T) {
	t.Parallel()
	var plain, small bytes.Buffer
	if err := repeated().WriteSummary(&plain); err != nil {
		t.Fatal(err)
	}
	if err := repeated().WriteCompressedSummary(&small); err != nil {
		t.Fatal(err)
	}
	want, err := Decode(plain.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	got, err := Decode(small.Bytes())
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-plain +compressed):\n%s", err, diff)
	}
	for n := 2; n < small.Len(); n++ {
		if _, err := Decode(small.Bytes()[:n]); !errors.Is(err, ErrTruncated) {
			t.Fatalf("%d of %d bytes: %v, want ErrTruncated", n, small.Len(), err)
		}
	}
	broken := bytes.Clone(small.Bytes())
	broken[len(broken)-5] ^= 1 // of the checksum
	if _, err := Decode(broken); err == nil || !strings.Contains(err.Error(), "decompressing") {
		t.Errorf("a wrong checksum: %v", err)
	}
}
