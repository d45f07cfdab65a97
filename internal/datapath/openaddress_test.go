// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"net/netip"
	"testing"
)

// TestServicesAreNotSparse lays out services that differ in one part only, as
// real ones do: the table must not have to grow much to tell them apart.
func TestServicesAreNotSparse(t *testing.T) {
	const n = 4096
	four, six := netip.MustParseAddr("198.18.0.0").As4(), netip.MustParseAddr("2001:2::").As16()
	key4 := func(address [4]byte, port uint16) xdpServiceKey4 {
		return xdpServiceKey4{Address: addressWords(netip.AddrFrom4(address))[0], Port: networkOrder(port), Protocol: 6}
	}
	key6 := func(address [16]byte, port uint16) xdpServiceKey6 {
		return xdpServiceKey6{Address: addressWords(netip.AddrFrom16(address)), Port: networkOrder(port), Protocol: 6}
	}
	for at := range 3 {
		keys := map[xdpServiceKey4]struct{}{}
		for i := range n {
			address := four
			address[at], address[at+1] = byte(i>>8), byte(i)
			keys[key4(address, 80)] = struct{}{}
		}
		expectDense(t, keys, hashService4)
	}
	for at := range 15 {
		keys := map[xdpServiceKey6]struct{}{}
		for i := range n {
			address := six
			address[at], address[at+1] = byte(i>>8), byte(i)
			keys[key6(address, 80)] = struct{}{}
		}
		expectDense(t, keys, hashService6)
	}
	ports4, ports6 := map[xdpServiceKey4]struct{}{}, map[xdpServiceKey6]struct{}{}
	for i := range n {
		ports4[key4(four, uint16(1+i))] = struct{}{}
		ports6[key6(six, uint16(1+i))] = struct{}{}
	}
	expectDense(t, ports4, hashService4)
	expectDense(t, ports6, hashService6)
}

func expectDense[K comparable](t *testing.T, keys map[K]struct{}, hash func(K) uint32) {
	t.Helper()
	slots, err := openAddress(keys, hash, func(K, struct{}) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	// Twice the keys is the least; random hashes need that, seldom double.
	if len(slots) > 8*len(keys) {
		t.Errorf("%d keys need %d slots", len(keys), len(slots))
	}
}

// TestHashTableIsBounded gives it keys that all fall on each other.
func TestHashTableIsBounded(t *testing.T) {
	keys := map[uint32]struct{}{}
	for i := range serviceProbes + 1 {
		keys[i] = struct{}{}
	}
	if _, err := openAddress(keys, func(uint32) uint32 { return 7 }, func(uint32, struct{}) bool { return true }); err == nil {
		t.Error("keys with one hash were laid out beyond the probes")
	}
}
