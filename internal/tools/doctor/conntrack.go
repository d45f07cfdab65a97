// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"io/fs"

	"github.com/prometheus/procfs"

	"github.com/jeoul/jeoul/internal/tools/doctor/evidence"
)

// readConntrack returns nil if the kernel does not track connections.
func readConntrack() (*evidence.Conntrack, error) {
	var c evidence.Conntrack
	var err error
	if c.Limit, err = readNumber("net.netfilter.nf_conntrack_max"); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	if c.Entries, err = readNumber("net.netfilter.nf_conntrack_count"); err != nil {
		return nil, err
	}
	// Below thread-self, /proc/net is the calling thread's.
	own, err := procfs.NewFS("/proc/thread-self")
	if err != nil {
		return nil, err
	}
	cores, err := own.ConntrackStat()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, core := range cores {
		c.Drop += core.Drop
		c.EarlyDrop += core.EarlyDrop
		c.InsertFailed += core.InsertFailed
	}
	return &c, nil
}
