// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
)

// TestUntilRefused: an invalid margin or time is rejected, with an example of a valid one, before anything is built.
func TestUntilRefused(t *testing.T) {
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"--until", "0%"}, "is no margin"},
		{[]string{"--until", "tight"}, "is no margin"},
		{[]string{"--until", "NaN"}, "is no margin"},
		{[]string{"--until", "5%", "--within", "0s"}, "is no time"},
		{[]string{"--until", "5%", "--lab", "vm"}, "use --repeats there"},
	} {
		var stdout, stderr bytes.Buffer
		args := append([]string{"bench", "run", "../../suites/l2dsr-bmt.yaml"}, test.args...)
		if code := execute(context.Background(), args, &stdout, &stderr); code == exitOK ||
			!strings.Contains(stderr.String(), test.want) {
			t.Errorf("%q: exit status %d, error %q; want a failure that says %q", test.args, code, &stderr, test.want)
		}
	}
}
