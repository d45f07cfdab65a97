// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"

	"github.com/jeoul/jeoul/internal/agent"
	"github.com/jeoul/jeoul/internal/lab"
)

// vipHolders are web servers that have the VIP, as direct server return needs it.
type vipHolders []vipHolder

type vipHolder struct {
	host  *lab.Host
	agent *agent.Agent
}

// holdVIP prepares every web server as `jeoul agent` does. If it fails, what it
// returns is still to be released.
func holdVIP(l *lab.Lab) (holders vipHolders, err error) {
	for _, server := range l.Servers {
		var a *agent.Agent
		err := server.Do(func() (err error) {
			a, err = agent.Start(agent.Options{VIPs: []netip.Addr{l.VIP4}, Dir: filepath.Join(server.Dir, "state")})
			return err
		})
		if err != nil {
			return holders, fmt.Errorf("preparing %s for direct server return: %w", server.Name, err)
		}
		holders = append(holders, vipHolder{server, a})
	}
	return holders, nil
}

// release takes the VIP off again.
func (v vipHolders) release() error {
	var errs []error
	for _, holder := range v {
		err := holder.host.Do(holder.agent.Close)
		if err != nil && !errors.Is(err, lab.ErrClosed) {
			errs = append(errs, fmt.Errorf("taking back direct server return on %s: %w", holder.host.Name, err))
		}
	}
	return errors.Join(errs...)
}
