// SPDX-License-Identifier: Apache-2.0

package speaker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/bgp"
	"github.com/jeoul/jeoul/internal/balancer/bgp/hosttable"
	"github.com/jeoul/jeoul/internal/balancer/lb"
)

// restoreInterval is the interval at which routes are restored that another program has removed from the table.
const restoreInterval = 5 * time.Second

// applyHostTable leaves the routers to a daemon of this host, and puts the VIPs into the table that it reads. mu is
// held.
func (s *Speaker) applyHostTable(desired bgp.Desired) error {
	err := s.openTable()
	if err != nil {
		return err
	}
	err = s.table.SetAddresses(desired.BGP.Table, routeMetrics(desired))
	if s.watch == nil {
		ctx, cancel := context.WithCancel(context.Background())
		s.watch = cancel
		go s.watchTable(ctx)
	}
	// Only now: the daemon may announce the routes that this process withdraws.
	if s.gobgp != nil {
		err = errors.Join(err, s.announce(nil), s.bfd.SetPeers(nil))
		s.stop()
	}
	s.desired = desired
	s.setAnnounced(s.table.Addresses())
	s.notifyChanged()
	return err
}

// routeMetrics are the metrics of all routes, by which the daemon's filter sets the attributes that GoBGP's policy sets
// here (attributes.routeClasses): full NAT's addresses are not drained, because replies come to them.
func routeMetrics(desired bgp.Desired) map[netip.Addr]int {
	of := map[netip.Addr]int{}
	vips := lb.RouteMetric
	if desired.Draining {
		vips = lb.DrainedRouteMetric
	}
	for _, kind := range []struct {
		addresses []netip.Addr
		metric    int
	}{{desired.VIPs, vips}, {desired.Backup, lb.BackupRouteMetric}, {desired.Pool, lb.RouteMetric}} {
		for _, address := range kind.addresses {
			of[address] = kind.metric
		}
	}
	return of
}

// openTable goes on with the routes that the previous process has left in tables. mu is held.
func (s *Speaker) openTable() (err error) {
	if s.table != nil {
		return nil
	}
	if s.table, err = hosttable.Open(s.journal, s.files); err != nil {
		return fmt.Errorf("tell the routing daemon of this host of VIPs: %w", err)
	}
	return nil
}

// clearTable removes all VIPs from tables, also those that the previous process added. mu is held.
func (s *Speaker) clearTable() error {
	if s.table == nil {
		if _, err := os.Stat(s.journal); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
	}
	if err := s.openTable(); err != nil {
		return err
	}
	if s.watch != nil {
		s.watch()
		s.watch = nil
	}
	if err := s.table.RemoveAll(); err != nil {
		return fmt.Errorf("withdraw VIPs from the routing daemon of this host: %w", err)
	}
	s.table = nil
	return nil
}

// watchTable puts routes back that another program removes, and adds those that the previous process wrote into its
// journal but did not add before it ended.
func (s *Speaker) watchTable(ctx context.Context) {
	ticks := time.NewTicker(restoreInterval)
	defer ticks.Stop()
	announced := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
		s.mu.Lock()
		if ctx.Err() == nil {
			restored, err := s.table.Restore()
			if len(restored) > 0 {
				s.log.Warn(fmt.Sprintf("another program has removed %d routes of VIPs, %s first: they are put back",
					len(restored), restored[0]))
			}
			for _, fault := range s.files.Faults() {
				err = errors.Join(err, errors.New(fault.String()))
			}
			if err == nil {
				announced = ""
			}
			if err != nil && err.Error() != announced {
				announced = err.Error()
				s.log.Error(announced)
			}
		}
		s.mu.Unlock()
	}
}
