// SPDX-License-Identifier: Apache-2.0

package generation

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// TestPoolNumbersEnd: once numbers run out, addresses that a pool had before lose theirs, and none of those that are in
// it.
func TestPoolNumbersEnd(t *testing.T) {
	var n PoolNumbers
	address := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)}) }
	const stays, changes = 3, 3 * maxPoolNumbers
	for i := range changes {
		pool := lb.Pool{Addresses: []netip.Addr{address(stays), address(i)}}
		before, had := n.Number(address(stays))
		n = n.with(pool)
		at, has := n.Number(address(stays))
		if !has || had && at != before {
			t.Fatalf("the number of one that stays was %d, and is %d: %v", before, at, has)
		}
		if _, has := n.Number(address(i)); !has || len(n[0]) > maxPoolNumbers {
			t.Fatalf("the last of %d has a number: %v, and there are %d", i+1, has, len(n[0]))
		}
	}
	if got := poolNumbersOf(n.Saved()); fmt.Sprint(got) != fmt.Sprint(n) {
		t.Errorf("saved and read, numbers are others")
	}
}
