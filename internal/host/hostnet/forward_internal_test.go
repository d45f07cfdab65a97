// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestForwardSettings6 includes the settings for older kernels.
func TestForwardSettings6(t *testing.T) {
	compare := cmp.AllowUnexported(setting{})
	want := []setting{{"net.ipv6.conf.eth0/5.force_forwarding", "1"}, {"net.ipv6.conf.eth0/5.forwarding", "1"}}
	if diff := cmp.Diff(want, forwardSettings6([]string{"eth0.5"}, true), compare); diff != "" {
		t.Errorf("since Linux 6.17 (-want +got):\n%s", diff)
	}
	want = []setting{{"net.ipv6.conf.all.forwarding", "1"}, {"net.ipv6.conf.eth0/5.forwarding", "1"}}
	if diff := cmp.Diff(want, forwardSettings6([]string{"eth0.5"}, false), compare); diff != "" {
		t.Errorf("before (-want +got):\n%s", diff)
	}
}
