// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPlan(t *testing.T) {
	type host struct{ Name, IPv4, IPv6, MAC, Port string }
	tests := []struct {
		role Role
		n    int
		want host
	}{
		{Balancer, 1, host{"balancer", "198.18.0.1", "2001:2::1", "02:00:12:00:00:01", "02:00:12:00:ff:01"}},
		{Client, 1, host{"client01", "198.18.1.1", "2001:2::1:1", "02:00:12:01:00:01", "02:00:12:01:ff:01"}},
		{Client, 99, host{"client99", "198.18.1.99", "2001:2::1:99", "02:00:12:01:00:99", "02:00:12:01:ff:99"}},
		{Server, 12, host{"web12", "198.18.2.12", "2001:2::2:12", "02:00:12:02:00:12", "02:00:12:02:ff:12"}},
	}
	for _, test := range tests {
		v4, v6 := Addresses(test.role, test.n)
		got := host{HostName(test.role, test.n), v4.String(), v6.String(),
			MAC(test.role, test.n).String(), PortMAC(test.role, test.n).String()}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		// IFNAMSIZ is 16 with the terminating zero.
		if name := PortName(got.Name, "1a2b"); len(name) > 15 {
			t.Errorf("device name %s is too long for the kernel", name)
		}
	}
}
