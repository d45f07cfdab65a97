// SPDX-License-Identifier: Apache-2.0

package iface

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/test/testenv"
)

// TestRenewal: of all kernel messages about addresses, only the extension of a single address's lifetime is a renewal.
func TestRenewal(t *testing.T) {
	l := newTestNetwork(t)
	l.ip("link set ctl0 up")
	var events *nl.NetlinkSocket
	testenv.In(t, l.ns, func() (err error) {
		events, err = nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR)
		return err
	})
	defer events.Close()
	if err := events.SetReceiveTimeout(&unix.Timeval{Sec: 20}); err != nil {
		t.Fatal(err)
	}
	next := func() bool {
		t.Helper()
		messages, _, err := events.Receive()
		for errors.Is(err, unix.EINTR) { // as after a stop of this process: see signal(7)
			messages, _, err = events.Receive()
		}
		if err != nil || len(messages) != 1 {
			t.Fatalf("%d messages: %v", len(messages), err)
		}
		return IsRenewal(messages[0])
	}
	for _, address := range []string{"198.18.0.100/32", "2001:2::100/128"} {
		for _, each := range []struct {
			args string
			want bool
		}{
			{"add " + address + " dev ctl0 valid_lft 100 preferred_lft 100 nodad", false},
			{"replace " + address + " dev ctl0 valid_lft 200 preferred_lft 100 nodad", true},
			{"replace " + address + " dev ctl0 nodad", false},
			{"del " + address + " dev ctl0", false},
		} {
			// The kernel counts in hundredths of a second.
			<-time.After(30 * time.Millisecond)
			l.ip("addr " + each.args)
			if got := next(); got != each.want {
				t.Errorf("ip addr %s: a renewal: %v", each.args, got)
			}
		}
	}
	l.ip("addr add 198.18.0.1/16 dev ctl0 valid_lft 100 preferred_lft 100")
	<-time.After(30 * time.Millisecond)
	next()
	l.ip("addr replace 198.18.0.1/16 dev ctl0 valid_lft 200 preferred_lft 100")
	if next() {
		t.Error("an address with a subnet is renewed: that its neighbours stay is worth looking at")
	}
}

func FuzzRenewal(f *testing.F) {
	f.Add([]byte{unix.AF_INET, 32, 0, 0, 1, 0, 0, 0, 20, 0, 6, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		m := syscall.NetlinkMessage{Data: data}
		m.Header.Type = unix.RTM_NEWADDR
		IsRenewal(m)
	})
}
