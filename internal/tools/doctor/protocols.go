// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"os"
	"reflect"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// readProtocols reads the counters of /proc/net/snmp, netstat and snmp6 of the calling
// thread's network namespace.
func readProtocols() (map[string]uint64, error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return nil, err
	}
	self, err := fs.Thread(os.Getpid(), unix.Gettid())
	if err != nil {
		return nil, err
	}
	counters := map[string]uint64{}
	snmp, err := self.Snmp()
	if err != nil {
		return nil, err
	}
	netstat, err := self.Netstat()
	if err != nil {
		return nil, err
	}
	flatten(counters, snmp)
	flatten(counters, netstat)
	// A kernel without IPv6 has no such file.
	if snmp6, err := self.Snmp6(); err == nil {
		flatten(counters, snmp6)
	}
	return counters, nil
}

// flatten copies the counters from a structure of structures, each under both names: TcpExt.ListenDrops becomes
// TcpExtListenDrops. It omits counters that are 0.
func flatten(into map[string]uint64, protocols any) {
	outer := reflect.ValueOf(protocols)
	for i := range outer.NumField() {
		group := outer.Field(i)
		if group.Kind() != reflect.Struct {
			continue
		}
		for j := range group.NumField() {
			if counter, ok := group.Field(j).Interface().(*float64); ok && counter != nil && *counter > 0 {
				into[outer.Type().Field(i).Name+group.Type().Field(j).Name] = uint64(*counter)
			}
		}
	}
}
