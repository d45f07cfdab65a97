// SPDX-License-Identifier: Apache-2.0

package iface

import (
	"errors"
	"testing"
)

// fakeDriver is a driver with one counter, or an error.
type fakeDriver struct {
	lost uint64
	err  error
}

func (f *fakeDriver) Stats(string) (map[string]uint64, error) {
	return map[string]uint64{"tx_queue_0_xdp_xmit_errors": f.lost}, f.err
}
func (f *fakeDriver) DriverName(string) (string, error) { return "ixgbe", f.err }
func (f *fakeDriver) Close()                            {}

// TestLossesStayWhereDriverFails: a count that falls to 0 for a moment would be taken for one that began anew.
func TestLossesStayWhereDriverFails(t *testing.T) {
	driver := &fakeDriver{lost: 10}
	i := &Interfaces{driver: driver, watched: []watched{{name: "eth0", index: 2, lost: 3}}}
	expect := func(want uint64) {
		t.Helper()
		if got := i.XDPLost(); len(got) != 1 || got[0] != want {
			t.Errorf("losses %v, want %d", got, want)
		}
	}
	expect(7)
	driver.lost, driver.err = 12, errors.New("device or resource busy")
	expect(7)
	driver.err = nil
	expect(9)
	driver.lost = 1 // the driver began anew
	expect(0)
}
