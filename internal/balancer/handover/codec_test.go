// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"bytes"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// testFlow is the n-th of many flows.
func testFlow(n int, six bool) lb.Flow {
	address := func(subnet byte) netip.Addr {
		if six {
			return netip.AddrFrom16([16]byte{0x20, 1, 0, 2, subnet, 14: byte(n >> 8), 15: byte(n)})
		}
		return netip.AddrFrom4([4]byte{198, 18, subnet, byte(n)})
	}
	f := lb.Flow{Client: netip.AddrPortFrom(address(1), uint16(n)), State: lb.FlowStates[n%len(lb.FlowStates)],
		Proven: true, Silent: time.Duration(n) * time.Millisecond,
		Backend: lb.BackendKey{Service: lb.ServiceKey{VIP: address(2), Port: 80, Protocol: lb.TCP}, Address: address(3),
			Port: 8080}}
	if n%2 == 0 {
		f.Source = netip.AddrPortFrom(address(4), uint16(n+1))
	} else {
		f.SYN = uint32(n) << 16
	}
	return f
}

// TestFlowsCoded: encoded flows are decoded, and an IPv4 flow takes no more than 48 bytes, its share of the message's
// head included.
func TestFlowsCoded(t *testing.T) {
	for _, six := range []bool{false, true} {
		var body []byte
		var want []lb.Flow
		for n := range 300 {
			f := testFlow(n, six)
			var err error
			if body, err = appendFlow(body, &f); err != nil {
				t.Fatal(err)
			}
			want = append(want, f)
		}
		got, err := parseFlows(nil, body, !six)
		if err != nil || len(got) != len(want) {
			t.Fatalf("%d flows, %v", len(got), err)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("flow %d is %+v, want %+v", i, got[i], want[i])
			}
		}
		if _, err := parseFlows(nil, body[1:], !six); !errors.Is(err, ErrDamaged) {
			t.Errorf("cut short: %v", err)
		}
	}
	// A message, TLS's record, TCP's and IP's headers with their options, and Ethernet's.
	flows := maxBatchBytes / flowBytes4
	if per := float64(maxBatchBytes+headerBytes+22+32+40+14) / float64(flows); per > 48 {
		t.Errorf("a flow takes %.1f bytes", per)
	}
	mixed := testFlow(1, false)
	mixed.Client = testFlow(1, true).Client
	if _, err := appendFlow(nil, &mixed); err == nil {
		t.Error("a flow of two families was written")
	}
}

// FuzzFlows: whatever comes is read as it was written, or refused.
func FuzzFlows(f *testing.F) {
	for n := range 4 {
		flow := testFlow(n, n > 1)
		body, _ := appendFlow(nil, &flow)
		f.Add(appendMessage(nil, map[bool]kind{false: kindFlows4, true: kindFlows6}[n > 1], body))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		k, length, err := parseHeader(data)
		if err != nil || length > len(data)-headerBytes || k != kindFlows4 && k != kindFlows6 {
			return
		}
		body := data[headerBytes:][:length]
		flows, err := parseFlows(nil, body, k == kindFlows4)
		if err != nil {
			if !errors.Is(err, ErrDamaged) {
				t.Errorf("%v", err)
			}
			return
		}
		var again []byte
		for i := range flows {
			if again, err = appendFlow(again, &flows[i]); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(again, body) {
			t.Errorf("%x is written as %x", body, again)
		}
	})
}
